/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_DEVICE_SUMS_H
#define ENGINE_DEVICE_DEVICE_SUMS_H

/* One element's part of struct device_sums; also compiled for GPUs. */

#include "engine/base/convert.h"
#include "engine/device/device.h"

CONVERT_ONE void device_sums_add(struct device_sums *sums, uint32_t f32)
{
	uint32_t magnitude = f32 & 0x7fffffff;
	float value;

	if (magnitude > CONVERT_F32_INFINITY) {
		sums->nans++;
	} else if (magnitude == CONVERT_F32_INFINITY) {
		sums->infinities++;
	} else {
		memcpy(&value, &f32, sizeof(value));
		sums->squares += (double)value * (double)value;
	}
}

CONVERT_ONE void device_sums_join(struct device_sums *sums, const struct device_sums *other)
{
	sums->squares += other->squares;
	sums->nans += other->nans;
	sums->infinities += other->infinities;
}

#endif
