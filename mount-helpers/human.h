/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_HUMAN_H
#define MOUNT_HELPERS_HUMAN_H

/* Sizes for people. */

#include "engine/base/base.h"

#include <stdio.h>

/* Writes bytes as 1.5G, 12M or 900B, and returns text. */
static inline const char *human(uint64_t bytes, char text[16])
{
	static const char units[] = "BKMGTPE";
	double value = (double)bytes;
	int unit = 0;

	for (; value >= 1024; unit++)
		value /= 1024;
	snprintf(text, 16, unit && value < 10 ? "%.1f%c" : "%.0f%c", value, units[unit]);
	return text;
}

#endif
