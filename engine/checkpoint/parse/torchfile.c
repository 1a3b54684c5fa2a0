/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/torchfile.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* TAR_MARK: where a tar archive has "ustar".  HEADERS: pickles before the object.  PROTOCOL:
 * the version in the second of these.
 */
enum { KEY_MAX = 255, TAR_MARK = 257, PICKLE_MAX = 1 << 30, HEADERS = 3, PROTOCOL = 1001 };

struct torchfile_storage {
	const char *key; /* the pickle's; not terminated */
	size_t key_size;
	uint64_t at; /* in the blob */
	uint64_t size;
	uint64_t numel;
	uint8_t item; /* bytes of an element */
	bool located; /* the file has its elements */
};

/* ---- the legacy container ----
 *
 * It begins with five pickles: a magic number, a version, facts about the machine, the object,
 * and the list of storage keys.  The storages follow in the order of that list, each with the
 * number of its elements (64 bits) before its elements.
 */

static int bad(struct parse_error *error)
{
	return parse_error_set(error, -EBADMSG, "neither a zip archive nor an old torch file");
}

/* Returns true if the pickle is the one with number `which` before the object: magic number,
 * version, or facts about the machine.
 */
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
	return little ? 0
		      : parse_error_set(error, -EOPNOTSUPP, "written on a big-endian machine");
}

static int read_one(const struct blob *b, uint64_t *at, struct pickle **out,
		    struct parse_error *error)
{
	int rc = pickle_read(out, b, *at, u64_min(b->size - *at, PICKLE_MAX), error);

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
			return parse_error_set(error, -EBADMSG, "storage %.*s has two sizes",
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
		return parse_error_set(error, -ENOMEM, "no memory");
	for (uint32_t i = 0; i < pickle_nodes(p); i++)
		if (pickle_storage(p, i, &s))
			f->storages[f->nstorages++] = storage_of(p, &s);
	return merge_storages(f, error);
}

static struct torchfile_storage *find_storage_of(const struct torchfile *f, const char *key,
						 size_t size)
{
	struct torchfile_storage wanted = { .key = key, .key_size = size };

	return key ? bsearch(&wanted, f->storages, f->nstorages, sizeof(wanted), compare_keys)
		   : NULL;
}

static int locate_storage(struct torchfile *f, struct torchfile_storage *s, uint64_t *at,
			  struct parse_error *error)
{
	uint64_t numel = 0, end = 0;
	int rc;

	if (!s || s->located)
		return parse_error_set(error, -EBADMSG,
				       "a storage that no tensor has, or twice");
	rc = blob_read(&f->blob, *at, &numel, sizeof(numel), error);
	if (rc)
		return rc;
	s->at = *at + sizeof(numel);
	if (numel != s->numel || !u64_mul(numel, s->item, &s->size) ||
	    !u64_add(s->at, s->size, &end) || end > f->blob.size)
		return parse_error_set(error, -EBADMSG,
				       "storage %.*s at byte %" PRIu64 " has %" PRIu64
				       " elements, %" PRIu64 " wanted",
				       (int)u64_min(s->key_size, 40), s->key,
				       f->blob.start + *at, numel, s->numel);
	s->located = true;
	*at = end;
	return 0;
}

static int locate_storages(struct torchfile *f, const struct pickle *keys, uint64_t at,
			   struct parse_error *error)
{
	uint32_t list = pickle_root(keys);
	int rc = 0;

	if (pickle_kind(keys, list) != PICKLE_LIST)
		return parse_error_set(error, -EBADMSG, "no list of storages");
	for (uint32_t i = 0; i < pickle_count(keys, list) && !rc; i++) {
		size_t size = 0;
		const char *key = pickle_text(keys, pickle_item(keys, list, i), &size);

		rc = locate_storage(f, find_storage_of(f, key, size), &at, error);
	}
	return rc;
}

static int open_legacy(struct torchfile *f, struct parse_error *error)
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
		rc = locate_storages(f, keys, at, error);
	pickle_free(keys);
	return rc;
}

/* ---- tensors ---- */

/* The bytes of a storage. */
struct storage {
	const struct zip_entry *entry;
	uint64_t at, size; /* bytes, in the blob */
};

static bool find_bytes(const struct torchfile *f, const char *key, size_t size,
		       struct storage *out)
{
	char name[KEY_MAX + 8];
	const struct torchfile_storage *s;
	const struct zip_entry *entry;

	if (f->legacy) {
		s = find_storage_of(f, key, size);
		if (s && s->located)
			*out = (struct storage){ NULL, s->at, s->size };
		return s && s->located;
	}
	if (size > KEY_MAX || memchr(key, '\0', size))
		return false;
	snprintf(name, sizeof(name), "data/%.*s", (int)size, key);
	entry = zip_find(&f->zip, name);
	if (entry)
		*out = (struct storage){ entry, entry->data, entry->size };
	return entry;
}

static int find_storage(const struct torchfile *f, uint32_t node, struct storage *out,
			struct parse_error *error)
{
	struct pickle_storage s = { 0 };
	const char *key = "";
	size_t size = 0;

	if (pickle_storage(f->pickle, node, &s))
		key = pickle_text(f->pickle, s.key, &size);
	if (!find_bytes(f, key, size, out))
		return parse_error_set(error, -EBADMSG,
				       "a tensor's storage %.*s is not in the file",
				       (int)u64_min(size, 60), key);
	if (out->size / frag_dtype_size(s.dtype) != s.numel)
		return parse_error_set(error, -EBADMSG,
				       "storage %.*s has %" PRIu64 " bytes, not %" PRIu64
				       " elements of %zu",
				       (int)u64_min(size, 60), key, out->size, s.numel,
				       frag_dtype_size(s.dtype));
	return 0;
}

static int take_sizes(const struct pickle *p, uint32_t tuple, uint64_t *out,
		      struct parse_error *error)
{
	for (uint32_t i = 0; i < pickle_count(p, tuple); i++) {
		int64_t size = -1;

		pickle_int(p, pickle_item(p, tuple, i), &size);
		if (size < 0)
			return parse_error_set(
				error, -EBADMSG,
				"a tensor whose shape or stride is negative, or no "
				"integer");
		out[i] = (uint64_t)size;
	}
	return 0;
}

static int take_tensor(const struct pickle *p, const struct pickle_tensor *t,
		       struct tensor *out, struct parse_error *error)
{
	int rc;

	*out = (struct tensor){ .dtype = t->dtype, .ndim = pickle_count(p, t->shape) };
	if (out->ndim > FRAG_DIMS_MAX)
		return parse_error_set(error, -EOPNOTSUPP, "a tensor of %u dimensions",
				       out->ndim);
	rc = take_sizes(p, t->shape, out->shape, error);
	if (!rc)
		rc = take_sizes(p, t->stride, out->stride, error);
	if (!rc && t->offset < 0)
		rc = parse_error_set(error, -EBADMSG, "a tensor whose offset is negative");
	return rc ? rc : tensor_measure(out, error);
}

static int locate(const struct torchfile *f, const struct pickle_tensor *t,
		  struct torchfile_tensor *out, struct parse_error *error)
{
	struct storage storage = { 0 };
	uint64_t end = 0;
	int rc = find_storage(f, t->storage, &storage, error);

	if (rc)
		return rc;
	if (!u64_mul((uint64_t)t->offset, frag_dtype_size(t->dtype), &out->at_storage) ||
	    !u64_add(out->at_storage, out->tensor.extent, &end) || end > storage.size)
		return parse_error_set(error, -EBADMSG,
				       "a tensor goes beyond its storage of %" PRIu64
				       " bytes at byte %" PRIu64,
				       storage.size, f->blob.start + storage.at);
	out->at = f->blob.start + storage.at + out->at_storage;
	out->entry = storage.entry;
	return 0;
}

int torchfile_tensor(const struct torchfile *f, uint32_t node, struct torchfile_tensor *out,
		     struct parse_error *error)
{
	struct pickle_tensor t;
	int rc;

	*out = (struct torchfile_tensor){ 0 };
	if (!pickle_tensor(f->pickle, node, &t))
		return parse_error_set(error, -EBADMSG, "no tensor");
	rc = take_tensor(f->pickle, &t, &out->tensor, error);
	return rc || !out->tensor.numel ? rc : locate(f, &t, out, error);
}

static int check_tensors(const struct torchfile *f, struct parse_error *error)
{
	struct torchfile_tensor t;
	int rc = 0;

	for (uint32_t i = 0; i < pickle_nodes(f->pickle) && !rc; i++) {
		if (pickle_kind(f->pickle, i) == PICKLE_TENSOR)
			rc = torchfile_tensor(f, i, &t, error);
		if (rc == -EOPNOTSUPP)
			rc = *error->why = 0;
	}
	return rc;
}

/* ---- containers ---- */

static int check_order(const struct torchfile *f, struct parse_error *error)
{
	const struct zip_entry *entry = zip_find(&f->zip, "byteorder");
	char order[16] = "";
	int rc;

	if (!entry)
		return 0;
	if (entry->size >= sizeof(order))
		return parse_error_set(error, -EBADMSG, "a byteorder of %" PRIu64 " bytes",
				       entry->size);
	rc = blob_read(&f->blob, entry->data, order, entry->size, error);
	if (!rc && strcmp(order, "little"))
		rc = parse_error_set(error, -EOPNOTSUPP,
				     "byteorder is %.16s, only little is taken", order);
	return rc;
}

static int open_entries(struct torchfile *f, struct parse_error *error)
{
	const struct zip_entry *entry = zip_find(&f->zip, "data.pkl");
	int rc;

	if (zip_find(&f->zip, "constants.pkl"))
		return parse_error_set(error, -EOPNOTSUPP, "a TorchScript archive");
	if (!entry)
		return parse_error_set(error, -EBADMSG,
				       "not of torch.save: %.80s has no data.pkl", f->zip.top);
	if (entry->size > PICKLE_MAX)
		return parse_error_set(error, -EFBIG, "data.pkl has %" PRIu64 " bytes",
				       entry->size);
	rc = check_order(f, error);
	return rc ? rc : pickle_read(&f->pickle, &f->blob, entry->data, entry->size, error);
}

static bool is_tar(const struct blob *b)
{
	struct parse_error error;
	char mark[5];

	return b->size > 512 && !blob_read(b, TAR_MARK, mark, sizeof(mark), &error) &&
	       !memcmp(mark, "ustar", sizeof(mark));
}

static int open_zip(struct torchfile *f, struct parse_error *error)
{
	int rc = zip_open(&f->zip, &f->blob, error);

	if (rc == -EBADMSG && is_tar(&f->blob))
		return parse_error_set(error, -EOPNOTSUPP,
				       "a tar archive, of a torch before 0.1.10");
	return rc ? rc : open_entries(f, error);
}

int torchfile_open(struct torchfile *f, const struct blob *b, struct parse_error *error)
{
	uint8_t first = 0;
	int rc;

	*f = (struct torchfile){ .blob = *b };
	rc = blob_read(b, 0, &first, 1, error);
	f->legacy = first == 0x80;
	if (!rc)
		rc = f->legacy ? open_legacy(f, error) : open_zip(f, error);
	if (!rc)
		rc = check_tensors(f, error);
	if (rc)
		torchfile_close(f);
	return rc;
}

void torchfile_close(struct torchfile *f)
{
	zip_close(&f->zip);
	pickle_free(f->pickle);
	free(f->storages);
	*f = (struct torchfile){ .blob = f->blob };
}
