/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/unit/checkpoint/edit/edited.h"

#include "engine/base/dtype.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/table/table-files.h"
#include "tests/find-param.h"
#include "tests/unit/waiter.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { RANK0, RANK1, MODEL, BOXES };
enum {
	W = 50,
	B = 20,
	FROZEN = 33,
	PART = 37,
	PADDING = 4,
	ROWS = 6,
	COLUMNS = 8,
	BOX_BASE = 1001
};

const char *const edited_names[EDITED_FILES] = { "rank0.pt", "rank1.pt", "model.pt", "boxes" };

const struct edited_truth edited_truths[EDITED_STATES] = {
	[EDITED_W] = { "w", "fp32", W * 4, 4 },
	[EDITED_B] = { "b", "fp32", B * 4, 4 },
	[EDITED_W_AVG] = { "w", "exp_avg", W * 4, 4 },
	[EDITED_FROZEN] = { "frozen", "bf16", FROZEN * 2, 2 },
	[EDITED_GRID] = { "grid", "fp32", ROWS *COLUMNS * 4, 4 },
};

/* Rows and columns: from, count. */
static const struct grid_box {
	uint64_t offsets[2], sizes[2];
} boxes[] = {
	{ { 0, 0 }, { 3, 5 } },
	{ { 0, 5 }, { 2, 3 } },
	{ { 2, 5 }, { 4, 3 } },
	{ { 3, 0 }, { 3, 5 } },
};

/* ---- files ---- */

static void fill(uint8_t *bytes, size_t size, unsigned seed)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)((seed = seed * 1103515245 + 12345) >> 16);
}

/* Numbers of all sizes, no NaN: those keep their bits through no conversion. */
static void fill_floats(float *values, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1103515245 + 12345;
		values[i] = (float)(int)(seed >> 8) / (float)(1 << (seed % 23));
	}
}

static void make_rank(struct edited *x, int rank)
{
	struct archive *a = &x->archives[rank];
	float values[PART + PADDING];

	archive_add(a, "ckpt/data.pkl", "\x80\x02N.", 4);
	for (unsigned i = 0; i < 2; i++) {
		char name[32];

		snprintf(name, sizeof(name), "ckpt/data/%u", i);
		fill_floats(values, PART + PADDING, (unsigned)rank * 10 + i);
		archive_add(a, name, values, sizeof(values));
	}
	archive_end(a, NULL);
}

static const struct {
	size_t count, size;
} model_entries[] = { { W, 2 }, { B, 2 }, { B, 2 }, { FROZEN, 2 }, { FROZEN, 2 } };

static void make_model(struct edited *x)
{
	struct archive *a = &x->archives[MODEL];
	uint8_t bytes[W * 4];

	archive_add(a, "ckpt/data.pkl", "\x80\x02N.", 4);
	for (unsigned i = 0; i < ARRAY_SIZE(model_entries); i++) {
		char name[32];

		snprintf(name, sizeof(name), "ckpt/data/%u", i);
		fill(bytes, sizeof(bytes), i < 3 ? 100 + i : 103);
		archive_add(a, name, bytes, model_entries[i].count * model_entries[i].size);
	}
	archive_end(a, NULL);
}

static void write_file(const struct edited *x, int file)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", x->dir, edited_names[file]);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, x->files[file], x->sizes[file]), (ssize_t)x->sizes[file]);
	close(fd);
}

void edited_make(struct edited *x)
{
	memset(x, 0, sizeof(*x));
	strcpy(x->dir, "/tmp/test-edit-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(x->dir));
	make_rank(x, RANK0);
	make_rank(x, RANK1);
	make_model(x);
	for (int i = RANK0; i <= MODEL; i++) {
		x->sizes[i] = x->archives[i].size;
		ck_assert_uint_le(x->sizes[i], EDITED_FILE_MAX);
		memcpy(x->files[i], x->archives[i].bytes, x->sizes[i]);
	}
	x->sizes[BOXES] = BOX_BASE + ROWS * COLUMNS * 4 + 77;
	fill(x->files[BOXES], x->sizes[BOXES], 7);
	for (int i = 0; i < EDITED_FILES; i++)
		write_file(x, i);
}

void edited_make_newer(const struct edited *x, const char *name)
{
	const struct timespec tomorrow = { .tv_sec = time(NULL) + 86400 };
	const struct timespec times[2] = { tomorrow, tomorrow };
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", x->dir, name);
	ck_assert(!utimensat(AT_FDCWD, path, times, 0));
}

void edited_remove(struct edited *x)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r '%s'", x->dir);
	ck_assert_int_eq(system(command), 0);
}

bool edited_is_as_expected(const struct edited *x)
{
	uint8_t bytes[EDITED_FILE_MAX];

	for (int i = 0; i < EDITED_FILES; i++) {
		char path[128];
		ssize_t n;
		int fd;

		snprintf(path, sizeof(path), "%s/%s", x->dir, edited_names[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		n = read(fd, bytes, sizeof(bytes));
		close(fd);
		if (n != (ssize_t)x->sizes[i] || memcmp(bytes, x->files[i], x->sizes[i]) != 0)
			return false;
	}
	return true;
}

/* ---- the table ---- */

static void add_files(const struct edited *x, struct table *t)
{
	for (int i = 0; i < EDITED_FILES; i++) {
		char path[128];
		struct stat st;
		int fd;

		snprintf(path, sizeof(path), "%s/%s", x->dir, edited_names[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		ck_assert(fd >= 0 && !fstat(fd, &st));
		ck_assert_int_eq(table_add_file(t, edited_names[i], fd, &st), i);
	}
}

/* As a torchfile would say it, twice. */
static void add_entries(struct table *t, uint32_t file)
{
	struct parse_error error;
	struct torchfile f;
	struct blob blob;

	ck_assert(!blob_of_file(t->files[file].fd, &blob, &error));
	ck_assert(!torchfile_open(&f, &blob, &error));
	for (uint32_t i = 0; i < f.zip.nentries; i++) {
		struct torchfile_tensor tensor = { .entry = &f.zip.entries[i] };

		ck_assert(!table_files_add_torch_entry(t, file, &f, &tensor));
		ck_assert(!table_files_add_torch_entry(t, file, &f, &tensor));
	}
	torchfile_close(&f);
}

static void add_flats(const struct edited *x, struct table *t)
{
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(table_add_flat(t, FRAG_F32), (int)i);
		for (uint32_t rank = RANK0; rank <= RANK1; rank++)
			ck_assert(!table_add_segment(
				t, rank, rank, x->archives[rank].entries[i + 1].data, PART));
	}
}

static uint64_t place(const struct edited *x, unsigned entry)
{
	return x->archives[MODEL].entries[entry + 1].data;
}

static void add_tensor(struct table *t, const char *name, enum frag_dtype dtype, uint32_t ndim,
		       const uint64_t *shape, bool frozen)
{
	struct table_spec spec = { name, NULL, dtype, ndim, shape, false, frozen };

	ck_assert_int_ge(table_add_tensor(t, &spec), 0);
}

static void add_own(struct table *t, const struct edited *x, unsigned entry, uint64_t count)
{
	ck_assert_int_ge(table_add_state(t, "bf16", FRAG_BF16), 0);
	ck_assert(!table_add_interval(t, MODEL, 0, place(x, entry), 0, count));
}

static void add_copy(struct table *t, const struct edited *x, unsigned entry,
		     enum frag_dtype dtype, uint64_t count)
{
	ck_assert_int_ge(table_add_copy(t, dtype), 0);
	ck_assert(!table_add_interval(t, MODEL, 0, place(x, entry), 0, count));
}

static void add_grid(struct table *t)
{
	uint64_t at = BOX_BASE;

	add_tensor(t, "grid", FRAG_F32, 2, (uint64_t[]){ ROWS, COLUMNS }, false);
	ck_assert_int_ge(table_add_state(t, "fp32", FRAG_F32), 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(boxes); i++) {
		ck_assert(!table_add_box(t, BOXES, i, at, boxes[i].offsets, boxes[i].sizes));
		at += boxes[i].sizes[0] * boxes[i].sizes[1] * 4;
	}
}

struct table *edited_table(const struct edited *x)
{
	struct table *t = table_new();

	ck_assert_ptr_nonnull(t);
	add_files(x, t);
	for (uint32_t i = RANK0; i <= MODEL; i++)
		add_entries(t, i);
	add_flats(x, t);
	add_tensor(t, "w", FRAG_BF16, 2, (uint64_t[]){ 5, 10 }, false);
	ck_assert_int_ge(table_add_flat_state(t, "fp32", 0, 0), 0);
	ck_assert_int_ge(table_add_flat_state(t, "exp_avg", 1, 0), 0);
	add_own(t, x, 0, W);
	add_tensor(t, "b", FRAG_BF16, 1, (uint64_t[]){ B }, false);
	ck_assert_int_ge(table_add_flat_state(t, "fp32", 0, W), 0);
	add_own(t, x, 1, B);
	add_copy(t, x, 2, FRAG_F16, B);
	add_tensor(t, "frozen", FRAG_BF16, 1, (uint64_t[]){ FROZEN }, true);
	add_own(t, x, 3, FROZEN);
	add_copy(t, x, 4, FRAG_BF16, FROZEN);
	add_grid(t);
	ck_assert_int_eq(table_finish(t), 0);
	return t;
}

uint32_t edited_find(const struct table *t, const char *name)
{
	for (uint32_t i = 0; i < t->ntensors; i++)
		if (!strcmp(table_string(t, t->tensors[i].name), name))
			return i;
	return TABLE_NONE;
}

static int open_table(const struct edited *x, struct engine **e,
		      const struct engine_options *options, char *why, size_t whysize)
{
	struct table *t = edited_table(x);
	struct folder *f;
	int rc = folder_open(&f, x->dir, why, whysize);

	if (rc) {
		table_free(t);
		return rc;
	}
	rc = checkpoint_open_table(e, options, f, "test", t, why, whysize);
	folder_close(f);
	return rc;
}

int edited_open(const struct edited *x, struct engine **e, bool writable, bool coherent,
		char *why, size_t whysize)
{
	struct engine_options options = { .source = x->dir,
					  .writable = writable,
					  .incoherent = !coherent };

	return open_table(x, e, &options, why, whysize);
}

int edited_open_beside(const struct edited *x, struct engine **e, const char *overlay,
		       char *why, size_t whysize)
{
	struct engine_options options = { .source = x->dir,
					  .writable = true,
					  .overlay = overlay };

	return open_table(x, e, &options, why, whysize);
}

/* ---- what should be ---- */

/* Where an element of the vectors lies. */
static uint8_t *in_flat(const struct edited *x, unsigned flat, uint64_t element)
{
	int rank = element < PART ? RANK0 : RANK1;

	return (uint8_t *)x->files[rank] + x->archives[rank].entries[flat + 1].data +
	       4 * (element - (rank == RANK1 ? PART : 0));
}

static uint8_t *in_grid(const struct edited *x, uint64_t element)
{
	uint64_t row = element / COLUMNS, column = element % COLUMNS, at = BOX_BASE;

	for (size_t i = 0; i < ARRAY_SIZE(boxes); i++) {
		const struct grid_box *b = &boxes[i];

		if (row - b->offsets[0] < b->sizes[0] && column - b->offsets[1] < b->sizes[1])
			return (uint8_t *)x->files[BOXES] + at +
			       4 * ((row - b->offsets[0]) * b->sizes[1] + column -
				    b->offsets[1]);
		at += b->sizes[0] * b->sizes[1] * 4;
	}
	abort();
}

static uint8_t *at_element(const struct edited *x, enum edited_state state, uint64_t element)
{
	switch (state) {
	case EDITED_W:
		return in_flat(x, 0, element);
	case EDITED_B:
		return in_flat(x, 0, W + element);
	case EDITED_W_AVG:
		return in_flat(x, 1, element);
	case EDITED_FROZEN:
		return (uint8_t *)x->files[MODEL] + place(x, 3) + 2 * element;
	default:
		return in_grid(x, element);
	}
}

static void expect_copy(struct edited *x, unsigned entry, uint64_t element, enum frag_dtype to,
			enum frag_dtype from, const uint8_t *value)
{
	_Alignas(4) uint8_t source[4], result[4];

	memcpy(source, value, frag_dtype_size(from));
	ck_assert(!dtype_convert(to, result, from, source, 1));
	memcpy(x->files[MODEL] + place(x, entry) + 2 * element, result, 2);
}

static void expect_copies(struct edited *x, enum edited_state state, uint64_t element)
{
	const uint8_t *value = at_element(x, state, element);

	if (state == EDITED_W)
		expect_copy(x, 0, element, FRAG_BF16, FRAG_F32, value);
	if (state == EDITED_B) {
		expect_copy(x, 1, element, FRAG_BF16, FRAG_F32, value);
		expect_copy(x, 2, element, FRAG_F16, FRAG_F32, value);
	}
	if (state == EDITED_FROZEN)
		expect_copy(x, 4, element, FRAG_BF16, FRAG_BF16, value);
}

static void expect_crcs(struct edited *x)
{
	for (int i = RANK0; i <= MODEL; i++) {
		const struct archive *a = &x->archives[i];

		for (unsigned j = 0; j < a->nentries; j++) {
			size_t data = a->entries[j].data, size = a->entries[j].size;
			uint32_t crc = archive_crc(x->files[i] + data, size);

			put32(x->files[i] + data + size + 4, crc);
			put32(x->files[i] + a->entries[j].central + 16, crc);
		}
	}
}

void edited_expect(struct edited *x, enum edited_state state, uint64_t offset, const void *data,
		   size_t size, bool coherent)
{
	size_t item = edited_truths[state].item;

	for (size_t i = 0; i < size; i++) {
		uint64_t element = (offset + i) / item;

		at_element(x, state, element)[(offset + i) % item] = ((const uint8_t *)data)[i];
		if (coherent)
			expect_copies(x, state, element);
	}
	expect_crcs(x);
}

void edited_value(const struct edited *x, enum edited_state state, uint8_t *out)
{
	size_t item = edited_truths[state].item;

	for (uint64_t i = 0; i < edited_truths[state].size / item; i++)
		memcpy(out + i * item, at_element(x, state, i), item);
}

/* ---- through the door ---- */

static void was_written(struct engine_write *write, int result)
{
	waiter_end(write->owner, result);
}

static struct engine_address address(struct engine *e, enum edited_state state)
{
	struct engine_address a = { .kind = ENGINE_PARAM };

	strcpy(a.key, edited_truths[state].key);
	ck_assert_int_eq(find_param(e, edited_truths[state].param, "", &a.param), 0);
	return a;
}

uint64_t edited_changed_ns(struct engine *e, enum edited_state state)
{
	struct engine_address a = address(e, state);

	return engine_changed_ns(e, &a);
}

struct engine_file *edited_open_state(struct engine *e, enum edited_state state)
{
	struct engine_address a = address(e, state);
	struct engine_file *file;
	uint64_t bytes;

	ck_assert_int_eq(engine_file_open(e, &a, &file, &bytes), 0);
	ck_assert_uint_eq(bytes, edited_truths[state].size);
	return file;
}

int64_t edited_read(struct engine *e, struct engine_file *file, uint64_t offset, size_t size,
		    void *out)
{
	return waiter_read(e, file, offset, size, out);
}

int edited_write(struct engine *e, enum edited_state state, const struct engine_extent *extents,
		 size_t n)
{
	struct waiter w;
	struct engine_file *file = edited_open_state(e, state);
	struct engine_write write = { .file = file,
				      .extents = extents,
				      .nextents = n,
				      .done = was_written,
				      .owner = &w };
	int rc;

	waiter_init(&w, NULL);
	engine_write(e, &write);
	rc = (int)waiter_wait(&w);
	engine_file_close(file);
	return rc;
}
