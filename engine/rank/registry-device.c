/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/rank/registry-internal.h"

#include <errno.h>

/* Rows in memory of devices. */

int registry_where(struct registry *r, const void *memory, struct registry_tier *in)
{
	int rc;

	*in = (struct registry_tier){ .tier = STATE_HOST };
	if (!r->devices || !memory)
		return 0;
	rc = devices_where(r->devices, memory, &in->device);
	if (rc || in->device == DEVICE_NONE) {
		in->device = 0;
		return rc;
	}
	in->tier = STATE_DEVICE;
	devices_mark(r->devices);
	return 0;
}

/* Under the lock.  Returns how many parts the bytes are in.  The caller frees *parts. */
static int find_parts(const struct state_row *row, uint64_t offset, uint64_t size,
		      struct iovec **parts)
{
	uint64_t max = u64_min(row->nextents, size / frag_dtype_size(row->dtype) + 2);
	int n;

	*parts = malloc((max + 1) * sizeof(**parts));
	if (!*parts)
		return -ENOMEM;
	n = states_parts(row, offset, size, *parts, (int)max);
	if (n < 0)
		free(*parts);
	return n;
}

static int fill(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
		uint64_t size, struct devices_copy *c, struct iovec **parts)
{
	const struct state_row *row = registry_row_at(r, epoch, number);
	int n = row ? find_parts(row, offset, size, parts) : -ESTALE;

	if (n < 0)
		return n;
	c->number = row->device;
	c->n = (unsigned)n;
	c->parts = *parts;
	return 0;
}

/* ---- versions ---- */

/* Makes a live version: the newest mark, behind which the stream has the row's present bytes.
 */
static int find_mark(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
		     uint64_t size, struct registry_version *v)
{
	const struct state_row *row;

	(void)offset, (void)size; /* begin checks them */
	v->device.devices = r->devices;
	v->device.epoch = epoch;
	v->device.row = number;
	LOCKED(&r->lock);
	row = registry_row_at(r, epoch, number);
	if (!row || row->tier != STATE_DEVICE)
		return -ESTALE;
	return devices_newest(r->devices, row->device, &v->device.mark);
}

static int preserve(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
		    uint64_t size, struct registry_version *v)
{
	struct devices_copy at;
	struct iovec *parts;
	int rc;

	pthread_mutex_lock(&r->lock);
	rc = fill(r, epoch, number, offset, size, &at, &parts);
	pthread_mutex_unlock(&r->lock);
	if (rc)
		return rc;
	v->device.devices = r->devices;
	v->device.preserved_at = offset;
	rc = devices_preserve(r->devices, at.number, parts, at.n, &v->device.preserved);
	free(parts);
	return rc;
}

static void release(struct registry_version *v)
{
	devices_mark_put(v->device.devices, v->device.mark);
	devices_preserved_put(v->device.preserved);
}

static bool same(const struct registry_version *a, const struct registry_version *b)
{
	return a->device.mark == b->device.mark && a->device.preserved == b->device.preserved;
}

static bool is_live(const struct registry_version *v)
{
	return !v->device.preserved;
}

void *registry_version_on_device(const struct registry_version *v, uint64_t offset,
				 struct device_event **written)
{
	uint8_t *memory = devices_preserved_memory(v->device.preserved, written);

	return memory ? memory + offset - v->device.preserved_at : NULL;
}

static void on_copied(struct devices_copy *c, int result)
{
	struct registry_fetch *f = container_of(c, struct registry_fetch, device);

	f->done(f, result);
}

static int begin_live(struct registry *r, const struct registry_version *v,
		      struct registry_fetch *f)
{
	const struct state_row *row;
	struct iovec *parts;
	int rc;

	if (v->device.mark)
		f->device.after = devices_mark_event(v->device.mark);
	LOCKED(&r->lock);
	row = registry_row_at(r, v->device.epoch, v->device.row);
	if (row && row->tier != STATE_DEVICE)
		return -EAGAIN; /* the row has moved since the version was made */
	rc = fill(r, v->device.epoch, v->device.row, f->offset, f->size, &f->device, &parts);
	if (!rc && r->arena_moves && r->states.rows[v->device.row].in_arena) {
		free(parts);
		return -EAGAIN; /* the bytes are being moved, perhaps over each other */
	}
	if (!rc) {
		rc = devices_copy_begin(r->devices, &f->device);
		free(parts);
	}
	return rc;
}

static int begin(struct registry *r, struct registry_fetch *f)
{
	const struct registry_version *v = f->version;

	f->device =
		(struct devices_copy){ .what = f->what, .host = f->memory, .done = on_copied };
	if (is_live(v))
		return begin_live(r, v, f);
	return devices_preserved_begin(v->device.preserved, f->offset - v->device.preserved_at,
				       f->size, &f->device);
}

/* ---- the trainer's thread, which alone drops rows ---- */

int registry_device_memory(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
			   uint64_t size, int *device, void **memory)
{
	const struct state_row *row;
	struct iovec part;
	int n;

	LOCKED(&r->lock);
	row = registry_row_at(r, epoch, number);
	if (!row || row->tier != STATE_DEVICE)
		return -ESTALE;
	n = states_parts(row, offset, size, &part, 1);
	*device = row->device;
	if (n == 1)
		*memory = part.iov_base;
	return n < 0 ? n : 0;
}

static int copy_now(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
		    uint64_t size, struct devices_copy c)
{
	struct iovec *parts;
	int rc;

	pthread_mutex_lock(&r->lock);
	rc = fill(r, epoch, number, offset, size, &c, &parts);
	pthread_mutex_unlock(&r->lock);
	if (rc)
		return rc;
	rc = devices_copy_now(r->devices, &c);
	free(parts);
	return rc;
}

static int read_device(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		       void *out, size_t size)
{
	return copy_now(r, epoch, row, offset, size, (struct devices_copy){ .host = out });
}

static int write_device(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			const void *data, size_t size)
{
	return copy_now(
		r, epoch, row, offset, size,
		(struct devices_copy){ .host = (void *)(uintptr_t)data, .to_device = true });
}

int registry_device_sums(struct registry *r, uint32_t row, uint64_t offset, uint64_t size,
			 enum device_what what, struct device_sums *sums)
{
	assert(thread_may_be_trainer());
	if (registry_tier(r, row) != STATE_DEVICE)
		return -EOPNOTSUPP;
	return copy_now(r, 0, row, offset, size,
			(struct devices_copy){ .what = what, .host = sums });
}

/* ---- the arena ---- */

int registry_arena_device(struct registry *r)
{
	int number;

	LOCKED(&r->lock);
	number = states_find(&r->states, STATE_ARENA, 0, 0, "");
	return number >= 0 && r->states.rows[number].tier == STATE_DEVICE
		       ? r->states.rows[number].device
		       : DEVICE_NONE;
}

/* Copies between size bytes on the device and host memory. */
static int copy_run(struct registry *r, int number, void *on_device, void *host, uint64_t size,
		    bool to_device)
{
	struct iovec part = { on_device, size };
	struct devices_copy c = {
		.number = number, .host = host, .to_device = to_device, .n = 1, .parts = &part
	};

	return devices_copy_now(r->devices, &c);
}

int registry_put_on_device(struct registry *r, int number, void *to, const void *from,
			   uint64_t size)
{
	return copy_run(r, number, to, (void *)(uintptr_t)from, size, size > 0);
}

/* The port copies ranges that do not overlap.  A run that moves by less than its size goes by
 * the host, 2 copies for each run of any size, rather than in runs as short as its way.
 *
 * The second copy overwrites part of `from`: if it fails half way (-EIO), only bounce has the
 * bytes, and writes them again.  After other errors the port has begun nothing.
 */
int registry_move_copy(struct registry *r, void *to, const void *from, size_t size,
		       void *bounce)
{
	struct iovec parts[] = { { to, size }, { (void *)(uintptr_t)from, size } };
	struct devices_copy c = {
		.number = registry_arena_device(r), .from = &parts[1], .n = 1, .parts = parts
	};
	uintptr_t a = (uintptr_t)to, b = (uintptr_t)from;
	int rc;

	if ((a < b ? b - a : a - b) >= size)
		return devices_copy_now(r->devices, &c);
	rc = copy_run(r, c.number, parts[1].iov_base, bounce, size, false);
	if (rc)
		return rc;
	rc = copy_run(r, c.number, to, bounce, size, true);
	if (rc != -EIO)
		return rc;
	return copy_run(r, c.number, to, bounce, size, true) ? -ENODATA : 0;
}

static int clear_part(struct registry *r, int number, const struct iovec *part)
{
	static uint8_t zeros[65536];
	int rc = 0;

	for (uint64_t done = 0; done < part->iov_len && !rc; done += sizeof(zeros)) {
		struct iovec some = { (uint8_t *)part->iov_base + done,
				      u64_min(sizeof(zeros), part->iov_len - done) };
		struct devices_copy c = { .number = number,
					  .host = zeros,
					  .to_device = true,
					  .n = 1,
					  .parts = &some };

		rc = devices_copy_now(r->devices, &c);
	}
	return rc;
}

static int clear_device(struct registry *r, uint32_t number)
{
	struct state_row row;
	size_t element;
	int rc = 0;

	pthread_mutex_lock(&r->lock);
	row = r->states.rows[number];
	pthread_mutex_unlock(&r->lock);
	element = frag_dtype_size(row.dtype);
	for (uint32_t i = 0; i < row.nextents && !rc; i++) {
		struct state_segment segment = states_segment(&row, i);
		struct iovec part = { (void *)(uintptr_t)segment.address,
				      segment.numel * element };

		if (segment.address)
			rc = clear_part(r, row.device, &part);
	}
	return rc;
}

/* Waits for copies of the dropped row, whose memory is the caller's again. */
static void end_copies(struct registry *r, const struct state_row *old)
{
	(void)old;
	devices_drain(r->devices);
}

const struct tier_ops registry_tier_device = {
	.read = read_device,
	.write = write_device,
	.clear = clear_device,
	.dropped = end_copies,
	.newest = find_mark,
	.preserve = preserve,
	.release = release,
	.same = same,
	.is_live = is_live,
	.begin = begin,
};

/* ---- on the device ---- */

static int find_what(enum frag_dtype to, enum frag_dtype from, enum device_what *what)
{
	static const struct {
		enum frag_dtype to, from;
		enum device_what what;
	} pairs[] = { { FRAG_BF16, FRAG_F32, DEVICE_F32_TO_BF16 },
		      { FRAG_F32, FRAG_BF16, DEVICE_BF16_TO_F32 },
		      { FRAG_F16, FRAG_F32, DEVICE_F32_TO_F16 },
		      { FRAG_F32, FRAG_F16, DEVICE_F16_TO_F32 } };

	*what = DEVICE_COPY;
	for (size_t i = 0; i < ARRAY_SIZE(pairs) && *what == DEVICE_COPY; i++)
		if (pairs[i].to == to && pairs[i].from == from)
			*what = pairs[i].what;
	return *what != DEVICE_COPY || to == from ? 0 : -EOPNOTSUPP;
}

/* The source or the destination of a conversion: its parts, in order; the caller frees them. */
struct conversion_side {
	const struct registry_elements *elements;
	struct state_row row; /* without its extents */
	struct iovec *parts;
	int n;
};

/* Under the lock. */
static int find_side(struct registry *r, struct conversion_side *s, uint64_t numel)
{
	const struct state_row *row = registry_row_at(r, 0, s->elements->row);
	uint64_t element;

	if (!row || row->tier != STATE_DEVICE)
		return -EOPNOTSUPP;
	s->row = *row;
	element = frag_dtype_size(row->dtype);
	s->n = find_parts(row, s->elements->at * element, numel * element, &s->parts);
	if (s->n < 0)
		s->parts = NULL;
	return s->n < 0 ? s->n : 0;
}

/* Returns the start of the part, and takes `bytes` bytes off there. */
static void *take_some(struct iovec *part, uint64_t bytes)
{
	void *start = part->iov_base;

	part->iov_base = (uint8_t *)start + bytes;
	part->iov_len -= bytes;
	return start;
}

/* Cuts both sides into runs of equally many elements, each within one part of either side: at
 * most as many runs as both have parts.
 */
static void cut_runs(struct devices_copy *c, struct conversion_side *to,
		     struct conversion_side *from, struct iovec *runs)
{
	uint64_t wide = frag_dtype_size(to->row.dtype), read = frag_dtype_size(from->row.dtype);
	struct iovec *sources = runs + to->n + from->n;

	for (int t = 0, f = 0; t < to->n && f < from->n;) {
		uint64_t n =
			u64_min(to->parts[t].iov_len / wide, from->parts[f].iov_len / read);

		runs[c->n] = (struct iovec){ take_some(&to->parts[t], n * wide), n * wide };
		/* the port counts a copy in bytes, a conversion in elements */
		sources[c->n++] = (struct iovec){ take_some(&from->parts[f], n * read),
						  c->what == DEVICE_COPY ? n * read : n };
		t += !to->parts[t].iov_len;
		f += !from->parts[f].iov_len;
	}
	c->parts = runs;
	c->from = sources;
}

static int convert_sides(struct registry *r, struct devices_copy *c, struct conversion_side *to,
			 struct conversion_side *from)
{
	size_t most = (size_t)(to->n + from->n);
	CLEANUP(free) struct iovec *runs = malloc(2 * (most + 1) * sizeof(*runs));
	int rc;

	if (!runs)
		return -ENOMEM;
	cut_runs(c, to, from, runs);
	rc = devices_copy_now(r->devices, c);
	return rc == -ENOSYS ? -EOPNOTSUPP : rc;
}

int registry_device_convert(struct registry *r, const struct registry_elements *to,
			    const struct registry_elements *from, uint64_t numel)
{
	struct conversion_side t = { .elements = to }, f = { .elements = from };
	struct devices_copy c = { .to_device = true };
	int rc;

	assert(thread_may_be_trainer());
	pthread_mutex_lock(&r->lock);
	rc = find_side(r, &t, numel);
	if (!rc)
		rc = find_side(r, &f, numel);
	pthread_mutex_unlock(&r->lock);
	if (!rc && t.row.device != f.row.device)
		rc = -EOPNOTSUPP;
	if (!rc)
		rc = find_what(t.row.dtype, f.row.dtype, &c.what);
	c.number = t.row.device;
	if (!rc)
		rc = convert_sides(r, &c, &t, &f);
	free(t.parts);
	free(f.parts);
	return rc;
}
