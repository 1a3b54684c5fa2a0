/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/dcp-metadata.h"
#include "engine/checkpoint/parse/torch-dtype.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <string.h>

enum { METADATA_MAX = 1 << 30 }; /* bytes */

static const uint64_t size_limit = (uint64_t)1 << 62;

struct dcp_metadata_row {
	const char *name;
	size_t name_size;
	uint32_t offset; /* the node of a tuple; PICKLE_NOTHING: none */
	uint32_t place;
};

/* ---- numbers ---- */

static bool take_size(const struct pickle *p, uint32_t node, uint64_t *out)
{
	int64_t size = -1;

	pickle_int(p, node, &size);
	*out = (uint64_t)size;
	return size >= 0 && *out < size_limit;
}

/* Takes the sizes of a tuple, which a torch.Size is. */
static bool take_sizes(const struct pickle *p, uint32_t tuple, uint64_t *out, uint32_t *n)
{
	*n = pickle_count(p, tuple);
	if (pickle_kind(p, tuple) != PICKLE_TUPLE || *n > FRAG_DIMS_MAX)
		return false;
	for (uint32_t i = 0; i < *n; i++)
		if (!take_size(p, pickle_item(p, tuple, i), &out[i]))
			return false;
	return true;
}

static bool has_zero(const uint64_t *sizes, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (!sizes[i])
			return true;
	return false;
}

static bool count(struct dcp_metadata_item *item)
{
	item->numel = !has_zero(item->shape, item->ndim);
	for (uint32_t i = 0; i < item->ndim && item->numel; i++)
		if (!u64_mul(item->numel, item->shape[i], &item->numel))
			return false;
	return item->numel < size_limit;
}

/* ---- storage_data ---- */

static int compare_offsets(const struct pickle *p, uint32_t a, uint32_t b)
{
	uint32_t n = pickle_count(p, a), m = pickle_count(p, b);

	if (!a != !b)
		return !a ? -1 : 1;
	if (n != m)
		return n < m ? -1 : 1;
	for (uint32_t i = 0; i < n; i++) {
		int64_t x = 0, y = 0;

		pickle_int(p, pickle_item(p, a, i), &x);
		pickle_int(p, pickle_item(p, b, i), &y);
		if (x != y)
			return x < y ? -1 : 1;
	}
	return 0;
}

static int compare_rows(const void *a, const void *b, void *pickle)
{
	const struct dcp_metadata_row *x = a, *y = b;
	int order = utf8_compare(x->name, x->name_size, y->name, y->name_size);

	return order ? order : compare_offsets(pickle, x->offset, y->offset);
}

/* Takes the name and offset of an index.  Returns false if no tensor that is taken can have
 * them.
 */
static bool take_row(const struct pickle *p, uint32_t index, uint32_t place,
		     struct dcp_metadata_row *out)
{
	uint64_t sizes[FRAG_DIMS_MAX];
	uint32_t ndim, name = pickle_field(p, index, "fqn");

	out->name = pickle_text(p, name, &out->name_size);
	out->offset = pickle_field(p, index, "offset");
	out->place = place;
	if (pickle_kind(p, out->offset) == PICKLE_NONE)
		out->offset = PICKLE_NOTHING;
	return pickle_kind(p, name) == PICKLE_TEXT && out->name_size <= DCP_NAME_MAX &&
	       (!out->offset || take_sizes(p, out->offset, sizes, &ndim));
}

static int take_rows(struct dcp_metadata *d, uint32_t data, struct parse_error *error)
{
	struct pickle *p = d->pickle;
	uint32_t n = pickle_count(p, data);

	d->rows = calloc((size_t)n + 1, sizeof(*d->rows));
	if (!d->rows)
		return parse_error_set(error, -ENOMEM, "no memory");
	for (uint32_t i = 0; i < n; i++)
		d->nrows += take_row(p, pickle_key(p, data, i), pickle_value(p, data, i),
				     &d->rows[d->nrows]);
	qsort_r(d->rows, d->nrows, sizeof(*d->rows), compare_rows, p);
	for (uint32_t i = 1; i < d->nrows; i++)
		if (!compare_rows(&d->rows[i - 1], &d->rows[i], p))
			return parse_error_set(error, -EBADMSG, "%.*s has two places",
					       (int)u64_min(d->rows[i].name_size, 100),
					       d->rows[i].name);
	return 0;
}

/* Finds the row of storage_data for a part of an item; NULL: none. */
static const struct dcp_metadata_row *
find_row(const struct dcp_metadata *d, const struct dcp_metadata_item *item, uint32_t offset)
{
	struct dcp_metadata_row key = { item->name, item->name_size, offset, 0 };
	uint64_t at = LOWER_BOUND(d->nrows, i, compare_rows(&d->rows[i], &key, d->pickle) < 0);
	bool found = at < d->nrows && !compare_rows(&d->rows[at], &key, d->pickle);

	return found ? &d->rows[at] : NULL;
}

static int fail_item(const struct dcp_metadata_item *item, int rc, const char *what,
		     struct parse_error *error)
{
	return parse_error_set(error, rc, "%.*s %s", (int)u64_min(item->name_size, 100),
			       item->name, what);
}

static int take_place(const struct dcp_metadata *d, const struct dcp_metadata_item *item,
		      uint32_t offset, struct dcp_metadata_place *out,
		      struct parse_error *error)
{
	const struct pickle *p = d->pickle;
	const struct dcp_metadata_row *row = find_row(d, item, offset);
	uint32_t name, transforms;

	if (!row && offset)
		row = find_row(d, item, PICKLE_NOTHING);
	if (!row)
		return fail_item(item, -EBADMSG, "has a part that is in no file", error);
	name = pickle_field(p, row->place, "relative_path");
	transforms = pickle_field(p, row->place, "transform_descriptors");
	out->file = pickle_text(p, name, &out->file_size);
	out->transformed =
		transforms && pickle_kind(p, transforms) != PICKLE_NONE &&
		(pickle_count(p, transforms) || pickle_kind(p, transforms) != PICKLE_LIST);
	if (pickle_kind(p, name) != PICKLE_TEXT ||
	    !take_size(p, pickle_field(p, row->place, "offset"), &out->at) ||
	    !take_size(p, pickle_field(p, row->place, "length"), &out->length))
		return fail_item(item, -EBADMSG, "has a part without file, offset and length",
				 error);
	return 0;
}

/* ---- items ---- */

/* Takes the dtype from the properties' state, which is (dtype, layout, ...) or a dict. */
static enum frag_dtype take_dtype(const struct pickle *p, uint32_t properties)
{
	uint32_t state = pickle_state(p, properties), type;
	enum frag_dtype dtype = 0;
	const char *name;
	size_t size;

	type = pickle_kind(p, state) == PICKLE_TUPLE && !pickle_field(p, properties, "dtype")
		       ? pickle_item(p, state, 0)
		       : pickle_field(p, properties, "dtype");
	name = pickle_text(p, pickle_name(p, type), &size);
	return name && torch_dtype_by_name(name, size, &dtype) ? dtype : 0;
}

static int take_tensor(const struct pickle *p, uint32_t value, struct dcp_metadata_item *out,
		       struct parse_error *error)
{
	uint32_t size = pickle_field(p, value, "size");

	out->is_tensor = true;
	out->chunks = pickle_field(p, value, "chunks");
	out->nchunks = pickle_count(p, out->chunks);
	out->dtype = take_dtype(p, pickle_field(p, value, "properties"));
	if (pickle_kind(p, size) == PICKLE_TUPLE && pickle_count(p, size) > FRAG_DIMS_MAX)
		return fail_item(out, -EOPNOTSUPP, "has too many dimensions", error);
	if (pickle_kind(p, out->chunks) != PICKLE_LIST ||
	    !take_sizes(p, size, out->shape, &out->ndim) || !count(out))
		return fail_item(out, -EBADMSG, "is a tensor without a shape or chunks", error);
	return out->dtype
		       ? 0
		       : fail_item(out, -EOPNOTSUPP, "has elements of an unknown type", error);
}

uint32_t dcp_metadata_count(const struct dcp_metadata *d)
{
	return pickle_count(d->pickle, d->items);
}

int dcp_metadata_item(const struct dcp_metadata *d, uint32_t i, struct dcp_metadata_item *out,
		      struct parse_error *error)
{
	const struct pickle *p = d->pickle;
	uint32_t key = pickle_key(p, d->items, i), value = pickle_value(p, d->items, i);

	*out = (struct dcp_metadata_item){ 0 };
	out->name = pickle_text(p, key, &out->name_size);
	if (pickle_kind(p, key) != PICKLE_TEXT) {
		*out = (struct dcp_metadata_item){ .name = "" };
		return parse_error_set(error, -EBADMSG, "a name that is no text");
	}
	if (out->name_size > DCP_NAME_MAX || memchr(out->name, '\0', out->name_size)) {
		out->name_size = u64_min(strnlen(out->name, out->name_size), DCP_NAME_MAX);
		return fail_item(out, -EOPNOTSUPP, "is no name that can be shown", error);
	}
	if (!pickle_field(p, value, "chunks") && !pickle_field(p, value, "size"))
		return 0;
	return take_tensor(p, value, out, error);
}

int dcp_metadata_chunk(const struct dcp_metadata *d, const struct dcp_metadata_item *item,
		       uint32_t i, struct dcp_metadata_chunk *out, struct parse_error *error)
{
	const struct pickle *p = d->pickle;
	uint32_t chunk = pickle_item(p, item->chunks, i), noffsets, nsizes;
	uint32_t offset = pickle_field(p, chunk, "offsets");

	*out = (struct dcp_metadata_chunk){ 0 };
	if (!take_sizes(p, offset, out->offsets, &noffsets) ||
	    !take_sizes(p, pickle_field(p, chunk, "sizes"), out->sizes, &nsizes) ||
	    noffsets != item->ndim || nsizes != item->ndim)
		return fail_item(item, -EBADMSG, "has a chunk of another shape", error);
	for (uint32_t k = 0; k < item->ndim; k++)
		if (out->offsets[k] + out->sizes[k] > item->shape[k])
			return fail_item(item, -EBADMSG, "has a chunk outside of its shape",
					 error);
	out->is_empty = has_zero(out->sizes, item->ndim);
	return out->is_empty ? 0 : take_place(d, item, offset, &out->place, error);
}

int dcp_metadata_bytes(const struct dcp_metadata *d, const struct dcp_metadata_item *item,
		       struct dcp_metadata_place *out, struct parse_error *error)
{
	*out = (struct dcp_metadata_place){ 0 };
	return take_place(d, item, PICKLE_NOTHING, out, error);
}

/* ---- the file ---- */

static int take(struct dcp_metadata *d, struct parse_error *error)
{
	const struct pickle *p = d->pickle;
	uint32_t root = pickle_root(p), data = pickle_field(p, root, "storage_data");

	d->items = pickle_field(p, root, "state_dict_metadata");
	if (pickle_kind(p, d->items) != PICKLE_DICT || pickle_kind(p, data) != PICKLE_DICT)
		return parse_error_set(error, -EBADMSG,
				       "no metadata of torch.distributed.checkpoint: "
				       "no state_dict_metadata or no storage_data");
	return take_rows(d, data, error);
}

int dcp_metadata_open(struct dcp_metadata *d, const struct blob *b, struct parse_error *error)
{
	int rc;

	*d = (struct dcp_metadata){ 0 };
	if (b->size > METADATA_MAX)
		return parse_error_set(error, -EFBIG, "it is larger than 1 GiB");
	rc = pickle_read(&d->pickle, b, 0, b->size, error);
	if (!rc)
		rc = take(d, error);
	if (rc)
		dcp_metadata_close(d);
	return rc;
}

void dcp_metadata_close(struct dcp_metadata *d)
{
	pickle_free(d->pickle);
	free(d->rows);
	*d = (struct dcp_metadata){ 0 };
}
