/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/rank/compute.h"
#include "engine/rank/registry-place.h"

#include <errno.h>
#include <string.h>

enum {
	AT_ONCE = COMPUTE_BUFFER / 3, /* a run, its packed elements, and the master's run */
	GAP_MAX = 4096, /* the most bytes from an element to the next that are copied too */
};

/* ---- messages ---- */

static int decode_slice(struct slice *s, const struct wire_compute *m)
{
	*s = (struct slice){ .first = m->first, .numel = 1, .naxes = m->naxes };
	if (m->naxes > FRAG_DIMS_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < m->naxes; i++) {
		s->axes[i].count = m->axes[i].count;
		s->axes[i].stride = (int64_t)m->axes[i].stride;
		if (!u64_mul(s->numel, m->axes[i].count, &s->numel))
			return -EINVAL;
	}
	return slice_rises(s) ? 0 : -EINVAL;
}

static int decode_operation(struct compute *c, const struct wire_compute *m)
{
	static const char signs[] = { [WIRE_SET] = '=',
				      [WIRE_MULTIPLY] = '*',
				      [WIRE_DIVIDE] = '/',
				      [WIRE_ADD] = '+',
				      [WIRE_SUBTRACT] = '-' };

	static_assert(sizeof(m->value) == sizeof(c->operation.value), "an element");
	c->follows = m->code == WIRE_FOLLOW;
	if (c->follows)
		return dtype_convert(c->dtype, NULL, c->master_dtype, NULL, 0);
	if (m->code >= ARRAY_SIZE(signs))
		return -EINVAL;
	c->operation.sign = signs[m->code];
	memcpy(&c->operation.number, &m->number, sizeof(m->number));
	memcpy(c->operation.value, m->value, sizeof(m->value));
	return operation_apply(&c->operation, c->dtype, NULL, 0);
}

/* Returns true if element `at` of a row, and as many more as the array has, have addresses. */
static bool is_addressable(const struct wire_compute *m, uint64_t at, enum frag_dtype dtype)
{
	uint64_t end, bytes;

	return frag_dtype_size(dtype) && u64_add(at, m->end - m->start, &end) &&
	       u64_mul(end, frag_dtype_size(dtype), &bytes);
}

int compute_decode(struct compute *c, const struct wire_compute *m)
{
	int rc;

	*c = (struct compute){ .epoch = m->epoch,
			       .row = m->state,
			       .dtype = (enum frag_dtype)m->dtype,
			       .start = m->start,
			       .at = m->at,
			       .master = m->master,
			       .master_dtype = (enum frag_dtype)m->master_dtype,
			       .master_at = m->master_at };
	if (!m->epoch || m->start >= m->end || !is_addressable(m, m->at, c->dtype))
		return -EINVAL;
	if (m->code == WIRE_FOLLOW && !is_addressable(m, m->master_at, c->master_dtype))
		return -EINVAL;
	rc = decode_slice(&c->slice, m);
	if (rc)
		return rc;
	c->first = slice_count_before(&c->slice, m->start);
	c->end = slice_count_before(&c->slice, m->end);
	return c->first < c->end ? decode_operation(c, m) : -EINVAL;
}

/* ---- checks ---- */

uint64_t compute_bytes(const struct compute *c)
{
	return (c->end - c->first) * frag_dtype_size(c->dtype);
}

/* Returns the bytes from the first element to the last, and in *offset where they begin, in a
 * row in which `start` is element `at`.
 */
static uint64_t span(const struct compute *c, uint64_t at, size_t element, uint64_t *offset)
{
	uint64_t low = slice_run(&c->slice, c->first).first;
	uint64_t high = slice_run(&c->slice, c->end - 1).first;

	*offset = (at + low - c->start) * element;
	return (high - low + 1) * element;
}

static int check_row(const struct compute *c, struct registry *r, uint32_t row,
		     enum frag_dtype dtype, uint64_t at)
{
	uint64_t offset, bytes = span(c, at, frag_dtype_size(dtype), &offset);
	enum frag_dtype found;
	int rc = registry_dtype(r, c->epoch, row, &found);

	if (rc)
		return rc;
	return found == dtype ? registry_check(r, c->epoch, row, offset, bytes) : -EINVAL;
}

int compute_check(const struct compute *c, struct registry *r)
{
	int rc = check_row(c, r, c->row, c->dtype, c->at);

	return rc || !c->follows ? rc
				 : check_row(c, r, c->master, c->master_dtype, c->master_at);
}

/* ---- application ---- */

/* Elements of a row that are equally far apart, and their bytes with those between them. */
struct strided_run {
	uint64_t at; /* of the first: element of the row */
	uint64_t count, step;
	size_t element;
	uint8_t *bytes;
};

static uint64_t run_bytes(const struct strided_run *run)
{
	return ((run->count - 1) * run->step + 1) * run->element;
}

static int run_read(const struct strided_run *run, struct registry *r, uint64_t epoch,
		    uint32_t row)
{
	return registry_read(r, epoch, row, run->at * run->element, run->bytes, run_bytes(run));
}

static void run_pack(const struct strided_run *run, uint8_t *packed)
{
	if (run->step == 1)
		memmove(packed, run->bytes, run->count * run->element);
	for (uint64_t i = 0; run->step > 1 && i < run->count; i++)
		memmove(packed + i * run->element, run->bytes + i * run->step * run->element,
			run->element);
}

static void run_unpack(const struct strided_run *run, const uint8_t *packed)
{
	if (run->step == 1)
		memcpy(run->bytes, packed, run->count * run->element);
	for (uint64_t i = 0; run->step > 1 && i < run->count; i++)
		memcpy(run->bytes + i * run->step * run->element, packed + i * run->element,
		       run->element);
}

/* Makes the new elements of a run, side by side in `packed`. */
static int make(const struct compute *c, struct registry *r, const struct strided_run *run,
		uint64_t at, uint8_t *packed, uint8_t *buffer)
{
	struct strided_run of_master = { .at = c->master_at + at - c->start,
					 .count = run->count,
					 .step = run->step,
					 .element = frag_dtype_size(c->master_dtype),
					 .bytes = buffer };
	int rc;

	if (!c->follows) {
		run_pack(run, packed);
		return operation_apply(&c->operation, c->dtype, packed, run->count);
	}
	rc = run_read(&of_master, r, c->epoch, c->master);
	if (rc)
		return rc;
	run_pack(&of_master, buffer); /* in place: elements move to the left, none is lost */
	return dtype_convert(c->dtype, packed, c->master_dtype, buffer, run->count);
}

/* Computes elements of the array from `at` on.  The bytes between them are written as they were
 * read: no other thread changes the row while the trainer's is at a boundary.
 */
static int apply_run(const struct compute *c, struct registry *r, uint64_t at, uint64_t count,
		     uint64_t step, uint8_t *buffer)
{
	struct strided_run run = { .at = c->at + at - c->start,
				   .count = count,
				   .step = step,
				   .element = frag_dtype_size(c->dtype),
				   .bytes = buffer };
	int rc = run_read(&run, r, c->epoch, c->row);

	if (!rc)
		rc = make(c, r, &run, at, buffer + AT_ONCE, buffer + 2 * AT_ONCE);
	if (rc)
		return rc;
	run_unpack(&run, buffer + AT_ONCE);
	return registry_write(r, c->epoch, c->row, run.at * run.element, run.bytes,
			      run_bytes(&run));
}

/* Returns the elements from number k on that are computed at once. */
static struct slice_run next_run(const struct compute *c, uint64_t k)
{
	struct slice_run run = slice_run(&c->slice, k);
	size_t widest = frag_dtype_size(c->dtype);
	uint64_t step = (uint64_t)run.step;

	if (c->follows)
		widest = u64_max(widest, frag_dtype_size(c->master_dtype));
	run.count = u64_min(run.count, c->end - k);
	/* as many as AT_ONCE bytes hold with the elements between them */
	run.count = u64_min(run.count,
			    step <= GAP_MAX / widest ? (AT_ONCE / widest - 1) / step + 1 : 1);
	return run;
}

bool compute_is_scattered(const struct compute *c, struct registry *r)
{
	uint64_t k = c->first;

	if (registry_place_stays_in_host(r, c->row) &&
	    (!c->follows || registry_place_stays_in_host(r, c->master)))
		return false;
	for (unsigned n = 0; k < c->end && n < COMPUTE_RUNS_MAX; n++)
		k += next_run(c, k).count;
	return k < c->end;
}

int compute_apply(const struct compute *c, struct registry *r, uint8_t *buffer)
{
	struct slice_run run;
	int rc = 0;

	for (uint64_t k = c->first; k < c->end && !rc; k += run.count) {
		run = next_run(c, k);
		rc = apply_run(c, r, run.first, run.count, (uint64_t)run.step, buffer);
	}
	return rc;
}
