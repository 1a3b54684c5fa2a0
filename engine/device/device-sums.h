/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_DEVICE_SUMS_H
#define ENGINE_DEVICE_DEVICE_SUMS_H

/* The making of struct device_sums; also compiled for GPUs.  Each thread adds its elements to a
 * struct device_adding, and the threads' sums are joined, by Chan, Golub and LeVeque, "Updating
 * formulae and a pairwise algorithm for computing sample variances" (1979).
 */

#include "engine/base/convert.h"
#include "engine/device/device.h"

struct device_adding {
	struct device_sums sums; /* mean and deviations: device_sums_end sets them */
	/* Sums of the distances from shift, which is the first finite element: so that equal
	 * elements have no deviation.
	 */
	double shift, sum, square;
};

/* Makes the sums of no elements. */
CONVERT_ONE void device_sums_init(struct device_sums *s)
{
	memset(s, 0, sizeof(*s));
	s->first_nan = s->first_inf = DEVICE_SUMS_NONE;
}

CONVERT_ONE void device_sums_begin(struct device_adding *a)
{
	device_sums_init(&a->sums);
	a->shift = a->sum = a->square = 0;
}

CONVERT_ONE void device_sums_add_finite(struct device_adding *a, uint32_t f32)
{
	struct device_sums *s = &a->sums;
	float value;

	memcpy(&value, &f32, sizeof(value));
	if (!s->finite) {
		a->shift = value;
		s->min = s->max = value;
	}
	s->finite++;
	s->zero += value == 0;
	s->min = value < s->min ? value : s->min;
	s->max = value > s->max ? value : s->max;
	s->squares += (double)value * (double)value;
	a->sum += value - a->shift;
	a->square += (value - a->shift) * (value - a->shift);
}

/* Adds the element of that number; numbers grow from call to call. */
CONVERT_ONE void device_sums_add(struct device_adding *a, uint32_t f32, uint64_t number)
{
	uint32_t magnitude = f32 & 0x7fffffff;
	struct device_sums *s = &a->sums;

	if (magnitude < CONVERT_F32_INFINITY) {
		device_sums_add_finite(a, f32);
	} else if (magnitude > CONVERT_F32_INFINITY) {
		s->first_nan = s->nan ? s->first_nan : number;
		s->nan++;
	} else {
		s->first_inf = s->inf ? s->first_inf : number;
		s->inf++;
	}
}

CONVERT_ONE void device_sums_end(struct device_adding *a, struct device_sums *sums)
{
	double n = (double)a->sums.finite;

	*sums = a->sums;
	if (!a->sums.finite)
		return;
	sums->mean = a->shift + a->sum / n;
	sums->deviations = a->square - a->sum * (a->sum / n);
	if (sums->deviations < 0) /* by rounding */
		sums->deviations = 0;
}

CONVERT_ONE void device_sums_join_finite(struct device_sums *s, const struct device_sums *other)
{
	double na = (double)s->finite, nb = (double)other->finite;
	double apart = other->mean - s->mean;

	s->finite += other->finite;
	s->zero += other->zero;
	s->min = other->min < s->min ? other->min : s->min;
	s->max = other->max > s->max ? other->max : s->max;
	s->mean += apart * (nb / (na + nb));
	s->deviations += other->deviations + apart * apart * (na * nb / (na + nb));
	s->squares += other->squares;
}

/* Adds the sums of other elements, whose numbers begin at `first`. */
CONVERT_ONE void device_sums_join(struct device_sums *s, const struct device_sums *other,
				  uint64_t first)
{
	struct device_sums before = *s;

	if (!before.finite) {
		*s = *other;
		s->nan = before.nan;
		s->inf = before.inf;
		s->first_nan = before.first_nan;
		s->first_inf = before.first_inf;
	} else if (other->finite) {
		device_sums_join_finite(s, other);
	}
	s->nan += other->nan;
	s->inf += other->inf;
	if (other->nan && first + other->first_nan < s->first_nan)
		s->first_nan = first + other->first_nan;
	if (other->inf && first + other->first_inf < s->first_inf)
		s->first_inf = first + other->first_inf;
}

#endif
