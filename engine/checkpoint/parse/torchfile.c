/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/torchfile-legacy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KEY_MAX = 255, TAR_MARK = 257 };

/* ---- tensors ---- */

/* Where the bytes of a storage are. */
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
		s = torchfile_find_legacy(f, key, size);
		*out = s ? (struct storage){ NULL, s->at, s->size } : (struct storage){ 0 };
		return s;
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
		return parse_fail(error, -EBADMSG, "a tensor's storage %.*s is not in the file",
				  (int)u64_min(size, 60), key);
	if (out->size / frag_dtype_size(s.dtype) != s.numel)
		return parse_fail(error, -EBADMSG,
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
			return parse_fail(error, -EBADMSG,
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
		return parse_fail(error, -EOPNOTSUPP, "a tensor of %u dimensions", out->ndim);
	rc = take_sizes(p, t->shape, out->shape, error);
	if (!rc)
		rc = take_sizes(p, t->stride, out->stride, error);
	if (!rc && t->offset < 0)
		rc = parse_fail(error, -EBADMSG, "a tensor whose offset is negative");
	return rc ? rc : tensor_measure(out, error);
}

static int place(const struct torchfile *f, const struct pickle_tensor *t,
		 struct torchfile_tensor *out, struct parse_error *error)
{
	struct storage storage = { 0 };
	uint64_t end = 0;
	int rc = find_storage(f, t->storage, &storage, error);

	if (rc)
		return rc;
	if (!u64_mul((uint64_t)t->offset, frag_dtype_size(t->dtype), &out->at_storage) ||
	    !u64_add(out->at_storage, out->tensor.extent, &end) || end > storage.size)
		return parse_fail(error, -EBADMSG,
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
		return parse_fail(error, -EBADMSG, "no tensor");
	rc = take_tensor(f->pickle, &t, &out->tensor, error);
	return rc || !out->tensor.numel ? rc : place(f, &t, out, error);
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
		return parse_fail(error, -EBADMSG, "a byteorder of %" PRIu64 " bytes",
				  entry->size);
	rc = blob_read(&f->blob, entry->data, order, entry->size, error);
	if (!rc && strcmp(order, "little"))
		rc = parse_fail(error, -EOPNOTSUPP, "byteorder is %.16s, only little is taken",
				order);
	return rc;
}

static int open_entries(struct torchfile *f, struct parse_error *error)
{
	const struct zip_entry *entry = zip_find(&f->zip, "data.pkl");
	int rc;

	if (zip_find(&f->zip, "constants.pkl"))
		return parse_fail(error, -EOPNOTSUPP, "a TorchScript archive");
	if (!entry)
		return parse_fail(error, -EBADMSG, "not of torch.save: %.80s has no data.pkl",
				  f->zip.top);
	if (entry->size > TORCHFILE_PICKLE_MAX)
		return parse_fail(error, -EFBIG, "data.pkl has %" PRIu64 " bytes", entry->size);
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
		return parse_fail(error, -EOPNOTSUPP,
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
		rc = f->legacy ? torchfile_open_legacy(f, error) : open_zip(f, error);
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
