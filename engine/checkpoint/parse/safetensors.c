/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/vec.h"
#include "engine/checkpoint/parse/json.h"
#include "engine/checkpoint/parse/safetensors.h"
#include "engine/checkpoint/parse/utf8.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { HEADER_MAX = 100000000, DEPTH_MAX = 3 };

static const struct type {
	const char *name;
	enum frag_dtype dtype;
	uint8_t bits;
} types[] = {
	{ "F32", FRAG_F32, 32 },
	{ "BF16", FRAG_BF16, 16 },
	{ "F16", FRAG_F16, 16 },
	{ "F64", FRAG_F64, 64 },
	{ "I64", FRAG_I64, 64 },
	{ "I32", FRAG_I32, 32 },
	{ "I16", FRAG_I16, 16 },
	{ "I8", FRAG_I8, 8 },
	{ "U64", FRAG_U64, 64 },
	{ "U32", FRAG_U32, 32 },
	{ "U16", FRAG_U16, 16 },
	{ "U8", FRAG_U8, 8 },
	{ "BOOL", FRAG_BOOL, 8 },
	{ "C64", FRAG_C64, 64 },
	{ "F8_E4M3", FRAG_F8_E4M3, 8 },
	{ "F8_E5M2", FRAG_F8_E5M2, 8 },
	{ "F8_E4M3FNUZ", FRAG_F8_E4M3FNUZ, 8 },
	{ "F8_E5M2FNUZ", FRAG_F8_E5M2FNUZ, 8 },
	{ "F8_E8M0", FRAG_F8_E8M0, 8 },
	{ "F4", 0, 4 },
	{ "F6_E2M3", 0, 6 },
	{ "F6_E3M2", 0, 6 },
};

/* ---- one tensor ---- */

/* A tensor while the header is read: begin and end are relative to the data, sizes is the place
 * of the shape in header_reader.sizes.
 */
struct draft {
	struct json_text name;
	const struct type *type;
	uint32_t ndim, sizes;
	uint64_t begin, end;
	bool has_shape, has_offsets;
};

struct header_reader {
	struct json json;
	struct safetensors *s;
	uint64_t data_size, data_at;
	struct vec drafts, sizes, facts;
	bool has_facts;
};

static void take_type(struct json *j, struct draft *d)
{
	struct json_text name;

	json_take_string(j, &name);
	if (d->type)
		json_fail(j, -EBADMSG, "two dtypes");
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (json_is(&name, types[i].name))
			d->type = &types[i];
	if (!d->type)
		json_fail(j, -EBADMSG, "no such dtype");
}

static void take_shape(struct header_reader *r, struct draft *d)
{
	uint64_t *size;

	if (d->has_shape)
		json_fail(&r->json, -EBADMSG, "two shapes");
	d->has_shape = true;
	d->sizes = r->sizes.count;
	json_enter(&r->json, '[');
	while (json_next(&r->json)) {
		size = vec_add(&r->sizes, sizeof(*size));
		if (size)
			json_take_integer(&r->json, size);
		else
			json_fail(&r->json, -ENOMEM, "no memory");
	}
	d->ndim = r->sizes.count - d->sizes;
	if (d->ndim > FRAG_DIMS_MAX)
		json_fail(&r->json, -EOPNOTSUPP, "a tensor of more than 16 dimensions");
}

static void take_offsets(struct json *j, struct draft *d)
{
	uint64_t *out[] = { &d->begin, &d->end };
	size_t n = 0;

	if (d->has_offsets)
		json_fail(j, -EBADMSG, "two data_offsets");
	d->has_offsets = true;
	json_enter(j, '[');
	for (; json_next(j); n++) {
		if (n < 2)
			json_take_integer(j, out[n]);
		else
			json_fail(j, -EBADMSG, "not two data_offsets");
	}
	if (n != 2)
		json_fail(j, -EBADMSG, "not two data_offsets");
}

static bool measure(const struct header_reader *r, const struct draft *d, uint64_t *numel,
		    uint64_t *bytes)
{
	const uint64_t *shape = (const uint64_t *)r->sizes.items + d->sizes;
	bool empty = false;
	uint64_t bits;

	*numel = 1;
	for (uint32_t i = 0; i < d->ndim; i++)
		empty |= !shape[i];
	for (uint32_t i = 0; i < d->ndim && !empty; i++)
		if (!u64_mul(*numel, shape[i], numel))
			return false;
	if (empty)
		*numel = 0;
	if (!u64_mul(*numel, d->type->bits, &bits) || bits % 8)
		return false;
	*bytes = bits / 8;
	return true;
}

static void check_draft(struct header_reader *r, const struct draft *d)
{
	uint64_t numel, bytes;

	if (!d->type || !d->has_shape || !d->has_offsets)
		json_fail(&r->json, -EBADMSG, "a tensor without dtype, shape or data_offsets");
	else if (r->json.rc)
		return;
	else if (d->end < d->begin || d->end > r->data_size)
		json_fail(&r->json, -EBADMSG, "a tensor beyond the data");
	else if (!measure(r, d, &numel, &bytes) || bytes != d->end - d->begin)
		json_fail(&r->json, -EBADMSG, "a tensor whose size is not that of its data");
}

static void take_tensor(struct header_reader *r, const struct json_text *name)
{
	struct draft d = { .name = *name }, *kept;
	struct json_text key;

	json_enter(&r->json, '{');
	while (json_next(&r->json)) {
		json_key(&r->json, &key);
		if (json_is(&key, "dtype"))
			take_type(&r->json, &d);
		else if (json_is(&key, "shape"))
			take_shape(r, &d);
		else if (json_is(&key, "data_offsets"))
			take_offsets(&r->json, &d);
		else
			json_skip(&r->json);
	}
	check_draft(r, &d);
	kept = r->json.rc ? NULL : vec_add(&r->drafts, sizeof(d));
	if (kept)
		*kept = d;
	else
		json_fail(&r->json, -ENOMEM, "no memory");
}

/* ---- the header ---- */

static void take_facts(struct header_reader *r)
{
	struct json_text key, value;
	struct safetensors_fact *fact;

	if (r->has_facts)
		json_fail(&r->json, -EBADMSG, "two __metadata__");
	r->has_facts = true;
	json_enter(&r->json, '{');
	while (json_next(&r->json)) {
		json_key(&r->json, &key);
		json_take_string(&r->json, &value);
		fact = r->json.rc ? NULL : vec_add(&r->facts, sizeof(*fact));
		if (fact)
			*fact = (struct safetensors_fact){ key.bytes, value.bytes,
							   (uint32_t)key.size,
							   (uint32_t)value.size };
		else
			json_fail(&r->json, -ENOMEM, "no memory");
	}
}

static int read_object(struct header_reader *r)
{
	struct json_text key;

	json_enter(&r->json, '{');
	while (json_next(&r->json)) {
		json_key(&r->json, &key);
		if (json_is(&key, "__metadata__"))
			take_facts(r);
		else
			take_tensor(r, &key);
	}
	return json_end(&r->json);
}

/* ---- all tensors ---- */

static int compare_names(const void *a, const void *b)
{
	const struct safetensor *x = a, *y = b;

	return utf8_compare(x->name, x->name_size, y->name, y->name_size);
}

static int compare_facts(const void *a, const void *b)
{
	const struct safetensors_fact *x = a, *y = b;

	return utf8_compare(x->key, x->key_size, y->key, y->key_size);
}

static int compare_places(const void *a, const void *b)
{
	const struct safetensor *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	return compare_names(a, b);
}

static int check_names(const struct safetensors *s, struct parse_error *error)
{
	const struct safetensor *t = s->tensors;
	const struct safetensors_fact *f = s->facts;

	for (uint32_t i = 1; i < s->ntensors; i++)
		if (!compare_names(&t[i - 1], &t[i]))
			return parse_error_set(error, -EBADMSG, "two tensors %.*s",
					       (int)u64_min(t[i].name_size, 100), t[i].name);
	for (uint32_t i = 1; i < s->nfacts; i++)
		if (!compare_facts(&f[i - 1], &f[i]))
			return parse_error_set(error, -EBADMSG, "two %.*s in __metadata__",
					       (int)u64_min(f[i].key_size, 100), f[i].key);
	return 0;
}

static int check_places(const struct header_reader *r, struct parse_error *error)
{
	const struct safetensors *s = r->s;
	uint64_t end = r->data_at;

	for (uint32_t i = 0; i < s->ntensors; i++) {
		if (s->tensors[i].at != end)
			return parse_error_set(error, -EBADMSG,
					       "a hole or an overlap before byte %" PRIu64,
					       s->tensors[i].at);
		end += s->tensors[i].bytes;
	}
	if (end != r->data_at + r->data_size)
		return parse_error_set(error, -EBADMSG,
				       "no tensor has the bytes from %" PRIu64 " on", end);
	return 0;
}

static int take_all(struct header_reader *r, struct parse_error *error)
{
	struct safetensors *s = r->s;
	int rc;

	s->tensors = calloc(r->drafts.count + 1, sizeof(*s->tensors));
	if (!s->tensors)
		return parse_error_set(error, -ENOMEM, "no memory");
	s->ntensors = r->drafts.count;
	s->sizes = r->sizes.items;
	for (uint32_t i = 0; i < s->ntensors; i++) {
		const struct draft *d = (const struct draft *)r->drafts.items + i;
		struct safetensor *x = &s->tensors[i];

		*x = (struct safetensor){ .name = d->name.bytes,
					  .name_size = (uint32_t)d->name.size,
					  .ndim = d->ndim,
					  .shape = s->sizes + d->sizes,
					  .dtype = d->type->dtype,
					  .bits = d->type->bits,
					  .at = r->data_at + d->begin };
		measure(r, d, &x->numel, &x->bytes);
	}
	qsort(s->tensors, s->ntensors, sizeof(*s->tensors), compare_names);
	if (s->nfacts)
		qsort(s->facts, s->nfacts, sizeof(*s->facts), compare_facts);
	rc = check_names(s, error);
	qsort(s->tensors, s->ntensors, sizeof(*s->tensors), compare_places);
	return rc ? rc : check_places(r, error);
}

/* ---- the file ---- */

static int load(struct safetensors *s, uint64_t *size, struct parse_error *error)
{
	uint64_t n = 0;
	int rc = blob_read(&s->blob, 0, &n, sizeof(n), error);

	if (rc)
		return rc;
	n = le64toh(n);
	if (n > HEADER_MAX)
		return parse_error_set(error, -EFBIG, "a header of %" PRIu64 " bytes", n);
	s->header = malloc(n + 1);
	if (!s->header)
		return parse_error_set(error, -ENOMEM, "no memory");
	rc = blob_read(&s->blob, sizeof(n), s->header, n, error);
	if (!rc && (!n || s->header[0] != '{'))
		rc = parse_error_set(error, -EBADMSG, "a header that does not begin with {");
	*size = n;
	return rc;
}

static int parse(struct safetensors *s, uint64_t header_size, struct parse_error *error)
{
	struct header_reader r = { .s = s,
				   .data_size = s->blob.size - 8 - header_size,
				   .data_at = s->blob.start + 8 + header_size };
	int rc;

	json_init(&r.json, s->header, header_size, DEPTH_MAX, s->blob.start + 8, error);
	rc = read_object(&r);
	s->sizes = r.sizes.items;
	s->facts = r.facts.items;
	s->nfacts = r.facts.count;
	if (!rc)
		rc = take_all(&r, error);
	free(r.drafts.items);
	return rc;
}

int safetensors_open(struct safetensors *s, const struct blob *b, struct parse_error *error)
{
	uint64_t header_size = 0;
	int rc;

	*s = (struct safetensors){ .blob = *b };
	rc = load(s, &header_size, error);
	if (!rc)
		rc = parse(s, header_size, error);
	if (rc)
		safetensors_close(s);
	return rc;
}

void safetensors_close(struct safetensors *s)
{
	free(s->header);
	free(s->tensors);
	free(s->facts);
	free(s->sizes);
	*s = (struct safetensors){ .blob = s->blob };
}
