/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/base.h"
#include "engine/base/dtype.h"
#include "tests/unit/checkpoint/formats/legacy-writer.h"

#include <check.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH = 16 };

struct storage {
	enum frag_dtype dtype;
	int64_t numel;
	float first;
};

static FILE *out;
static bool is_dict[DEPTH], has_key;
static unsigned depth;
static struct storage *storages;
static uint32_t nstorages;

static void put(const void *bytes, size_t size)
{
	ck_assert_uint_eq(fwrite(bytes, 1, size, out), size);
}

static void op(char c)
{
	put(&c, 1);
}

static void number(int64_t value)
{
	op('\x8a'); /* LONG1 */
	op(8);
	put(&value, 8);
}

static void text_of(const char *bytes, size_t size)
{
	uint32_t n = (uint32_t)size;

	op('X');
	put(&n, 4);
	put(bytes, size);
}

/* Behind a value: where it belongs. */
static void close_value(void)
{
	if (!depth)
		return;
	ck_assert(!is_dict[depth - 1] || has_key);
	op(is_dict[depth - 1] ? 's' : 'a');
	has_key = false;
}

static void protocol(void)
{
	put("\x80\x02", 2);
}

static void head(void)
{
	protocol();
	put("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 13);
	protocol();
	put("M\xe9\x03.", 4);
	protocol();
	put("}", 1);
	text_of("protocol_version", 16);
	put("M\xe9\x03s", 4);
	text_of("little_endian", 13);
	put("\x88s.", 3);
}

void legacy_begin(const char *folder, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	ck_assert_ptr_nonnull(out = fopen(path, "w"));
	depth = nstorages = 0;
	head();
	protocol();
}

static const char *class_of(enum frag_dtype dtype)
{
	return dtype == FRAG_F32    ? "FloatStorage"
	       : dtype == FRAG_BF16 ? "BFloat16Storage"
	       : dtype == FRAG_F16  ? "HalfStorage"
				    : "LongStorage";
}

static void put_keys(void)
{
	char key[16];

	protocol();
	op(']');
	for (uint32_t i = 0; i < nstorages; i++) {
		text_of(key, (size_t)snprintf(key, sizeof(key), "%u", i));
		op('a');
	}
	op('.');
}

static void put_element(const struct storage *s, int64_t i)
{
	float value = s->first + (float)i;
	uint8_t bytes[8];
	int64_t integer = (int64_t)value;

	if (s->dtype == FRAG_I64)
		memcpy(bytes, &integer, 8);
	else
		ck_assert(!dtype_convert(s->dtype, bytes, FRAG_F32, &value, 1));
	put(bytes, frag_dtype_size(s->dtype));
}

static void put_storage(const struct storage *s)
{
	put(&s->numel, 8);
	for (int64_t i = 0; i < s->numel; i++)
		put_element(s, i);
}

void legacy_end(void)
{
	ck_assert_uint_eq(depth, 0);
	op('.');
	put_keys();
	for (uint32_t i = 0; i < nstorages; i++)
		put_storage(&storages[i]);
	ck_assert(!fclose(out));
	free(storages);
	storages = NULL;
}

/* ---- values ---- */

static void open_value(bool dict)
{
	ck_assert_uint_lt(depth, DEPTH);
	is_dict[depth++] = dict;
	has_key = false;
	op(dict ? '}' : ']');
}

void legacy_dict(void)
{
	open_value(true);
}

void legacy_list(void)
{
	open_value(false);
}

void legacy_up(void)
{
	depth--;
	has_key = true;
	close_value();
}

void legacy_key_of(const char *bytes, size_t size)
{
	text_of(bytes, size);
	has_key = true;
}

void legacy_key(const char *key)
{
	legacy_key_of(key, strlen(key));
}

void legacy_key_int(int64_t key)
{
	number(key);
	has_key = true;
}

void legacy_int(int64_t value)
{
	number(value);
	close_value();
}

void legacy_real(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, 8);
	bits = __builtin_bswap64(bits);
	op('G');
	put(&bits, 8);
	close_value();
}

void legacy_text(const char *text)
{
	text_of(text, strlen(text));
	close_value();
}

static void tuple(unsigned n, const int64_t *values)
{
	op('(');
	for (unsigned i = 0; i < n; i++)
		number(values[i]);
	op('t');
}

void legacy_size(unsigned ndim, const int64_t *shape)
{
	put("ctorch\nSize\n", 12);
	tuple(ndim, shape);
	put("\x85R", 2);
	close_value();
}

static void put_persistent_id(const struct storage *s, uint32_t key)
{
	char text[32];

	op('(');
	text_of("storage", 7);
	fprintf(out, "ctorch\n%s\n", class_of(s->dtype));
	text_of(text, (size_t)snprintf(text, sizeof(text), "%u", key));
	text_of("cpu", 3);
	number(s->numel);
	put("NtQ", 3);
}

void legacy_tensor(enum frag_dtype dtype, unsigned ndim, const int64_t *shape, float first)
{
	struct storage s = { dtype, 1, first };
	int64_t strides[FRAG_DIMS_MAX];

	for (unsigned d = ndim; d-- > 0; s.numel *= shape[d])
		strides[d] = s.numel;
	storages = reallocarray(storages, nstorages + 1, sizeof(s));
	storages[nstorages] = s;
	put("ctorch._utils\n_rebuild_tensor_v2\n(", 34);
	put_persistent_id(&s, nstorages++);
	number(0);
	tuple(ndim, shape);
	tuple(ndim, strides);
	put("\x89NtR", 4);
	close_value();
}

void legacy_vector(enum frag_dtype dtype, int64_t numel, float first)
{
	legacy_tensor(dtype, 1, &numel, first);
}
