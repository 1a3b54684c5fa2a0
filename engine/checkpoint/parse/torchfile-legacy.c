/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/torchfile-legacy.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { HEADERS = 3, PROTOCOL = 1001 };

static int bad(struct parse_error *error)
{
	return parse_fail(error, -EBADMSG, "neither a zip archive nor an old torch file");
}

/* The three pickles before the object. */
static bool is_header(const struct pickle *p, int which)
{
	static const uint8_t magic[] = { 0x6c, 0xfc, 0x9c, 0x46, 0xf9,
					 0x20, 0x6a, 0xa8, 0x50, 0x19 };
	size_t size = 0;
	const char *bytes = pickle_text(p, pickle_root(p), &size);
	int64_t version = 0;

	if (which == 0)
		return bytes && size == sizeof(magic) && !memcmp(bytes, magic, size);
	if (which == 1)
		return pickle_int(p, pickle_root(p), &version) && version == PROTOCOL;
	return pickle_kind(p, pickle_root(p)) == PICKLE_DICT;
}

static int check_machine(const struct pickle *p, struct parse_error *error)
{
	bool little = true;

	pickle_bool(p, pickle_get(p, pickle_root(p), "little_endian"), &little);
	return little ? 0 : parse_fail(error, -EOPNOTSUPP, "written on a big-endian machine");
}

static int read_one(const struct blob *b, uint64_t *at, struct pickle **out,
		    struct parse_error *error)
{
	int rc = pickle_read(out, b, *at, u64_min(b->size - *at, TORCHFILE_PICKLE_MAX), error);

	if (!rc)
		*at += pickle_size(*out);
	return rc;
}

static int read_headers(const struct blob *b, uint64_t *at, struct parse_error *error)
{
	for (int i = 0; i < HEADERS; i++) {
		struct pickle *p;
		int rc = read_one(b, at, &p, error);

		if (rc)
			return i || rc == -ENOMEM ? rc : bad(error);
		rc = !is_header(p, i) ? bad(error) : i == 2 ? check_machine(p, error) : 0;
		pickle_free(p);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- storages ---- */

static int compare_keys(const void *a, const void *b)
{
	const struct torchfile_storage *x = a, *y = b;

	return utf8_compare(x->key, x->key_size, y->key, y->key_size);
}

static struct torchfile_storage storage_of(const struct pickle *p,
					   const struct pickle_storage *s)
{
	struct torchfile_storage t = { .numel = s->numel,
				       .item = (uint8_t)frag_dtype_size(s->dtype) };

	t.key = pickle_text(p, s->key, &t.key_size);
	return t;
}

/* Makes one row of the storages with the same key, which must agree on their size. */
static int merge_storages(struct torchfile *f, struct parse_error *error)
{
	struct torchfile_storage *s = f->storages;
	uint32_t kept = 0;

	qsort(s, f->nstorages, sizeof(*s), compare_keys);
	for (uint32_t i = 0; i < f->nstorages; i++) {
		if (!kept || compare_keys(&s[kept - 1], &s[i])) {
			s[kept++] = s[i];
			continue;
		}
		if (s[kept - 1].numel != s[i].numel || s[kept - 1].item != s[i].item)
			return parse_fail(error, -EBADMSG, "storage %.*s has two sizes",
					  (int)u64_min(s[i].key_size, 60), s[i].key);
	}
	f->nstorages = kept;
	return 0;
}

static int collect_storages(struct torchfile *f, struct parse_error *error)
{
	const struct pickle *p = f->pickle;
	struct pickle_storage s;
	uint32_t n = 0;

	for (uint32_t i = 0; i < pickle_nodes(p); i++)
		n += pickle_storage(p, i, &s);
	f->storages = calloc(n + 1, sizeof(*f->storages));
	if (!f->storages)
		return parse_fail(error, -ENOMEM, "no memory");
	for (uint32_t i = 0; i < pickle_nodes(p); i++)
		if (pickle_storage(p, i, &s))
			f->storages[f->nstorages++] = storage_of(p, &s);
	return merge_storages(f, error);
}

static struct torchfile_storage *find(const struct torchfile *f, const char *key, size_t size)
{
	struct torchfile_storage wanted = { .key = key, .key_size = size };

	return key ? bsearch(&wanted, f->storages, f->nstorages, sizeof(wanted), compare_keys)
		   : NULL;
}

const struct torchfile_storage *torchfile_find_legacy(const struct torchfile *f,
						      const char *key, size_t size)
{
	const struct torchfile_storage *s = find(f, key, size);

	return s && s->placed ? s : NULL;
}

static int place(struct torchfile *f, struct torchfile_storage *s, uint64_t *at,
		 struct parse_error *error)
{
	uint64_t numel = 0, end = 0;
	int rc;

	if (!s || s->placed)
		return parse_fail(error, -EBADMSG, "a storage that no tensor has, or twice");
	rc = blob_read(&f->blob, *at, &numel, sizeof(numel), error);
	if (rc)
		return rc;
	s->at = *at + sizeof(numel);
	if (numel != s->numel || !u64_mul(numel, s->item, &s->size) ||
	    !u64_add(s->at, s->size, &end) || end > f->blob.size)
		return parse_fail(error, -EBADMSG,
				  "storage %.*s at byte %" PRIu64 " has %" PRIu64
				  " elements, %" PRIu64 " wanted",
				  (int)u64_min(s->key_size, 40), s->key, f->blob.start + *at,
				  numel, s->numel);
	s->placed = true;
	*at = end;
	return 0;
}

static int place_storages(struct torchfile *f, const struct pickle *keys, uint64_t at,
			  struct parse_error *error)
{
	uint32_t list = pickle_root(keys);
	int rc = 0;

	if (pickle_kind(keys, list) != PICKLE_LIST)
		return parse_fail(error, -EBADMSG, "no list of storages");
	for (uint32_t i = 0; i < pickle_count(keys, list) && !rc; i++) {
		size_t size = 0;
		const char *key = pickle_text(keys, pickle_item(keys, list, i), &size);

		rc = place(f, find(f, key, size), &at, error);
	}
	return rc;
}

int torchfile_open_legacy(struct torchfile *f, struct parse_error *error)
{
	struct pickle *keys = NULL;
	uint64_t at = 0;
	int rc = read_headers(&f->blob, &at, error);

	if (!rc)
		rc = read_one(&f->blob, &at, &f->pickle, error);
	if (!rc)
		rc = read_one(&f->blob, &at, &keys, error);
	if (!rc)
		rc = collect_storages(f, error);
	if (!rc)
		rc = place_storages(f, keys, at, error);
	pickle_free(keys);
	return rc;
}
