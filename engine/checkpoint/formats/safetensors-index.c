/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/vec.h"
#include "engine/checkpoint/formats/safetensors-index.h"
#include "engine/checkpoint/parse/json.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { INDEX_MAX = 256 << 20, FILE_NAME_MAX = 255, DEPTH_MAX = 8 };

struct index_entry {
	struct json_text name, file;
};

static bool is_plain(const struct json_text *file)
{
	return file->size && file->size <= FILE_NAME_MAX && !json_is(file, ".") &&
	       !json_is(file, "..") && !memchr(file->bytes, '/', file->size) &&
	       !memchr(file->bytes, '\0', file->size);
}

static void take_map(struct json *j, struct vec *entries)
{
	struct index_entry e, *kept;

	if (entries->count)
		json_fail(j, -EBADMSG, "two weight_maps");
	json_enter(j, '{');
	while (json_next(j)) {
		json_key(j, &e.name);
		json_take_string(j, &e.file);
		if (!is_plain(&e.file))
			json_fail(j, -EBADMSG, "not the name of a file in the same folder");
		kept = j->rc ? NULL : vec_add(entries, sizeof(e));
		if (kept)
			*kept = e;
		else
			json_fail(j, -ENOMEM, "no memory");
	}
}

static int read_object(struct json *j, struct vec *entries)
{
	struct json_text key;
	bool found = false;

	json_enter(j, '{');
	while (json_next(j)) {
		json_key(j, &key);
		if (json_is(&key, "weight_map")) {
			if (found)
				json_fail(j, -EBADMSG, "two weight_maps");
			found = true;
			take_map(j, entries);
		} else {
			json_skip(j);
		}
	}
	if (!found)
		json_fail(j, -EBADMSG, "no weight_map");
	return json_end(j);
}

/* ---- files and names ---- */

static int compare_files(const void *a, const void *b)
{
	const struct json_text *x = &((const struct index_entry *)a)->file;
	const struct json_text *y = &((const struct index_entry *)b)->file;

	return utf8_compare(x->bytes, x->size, y->bytes, y->size);
}

static int compare_names(const void *a, const void *b)
{
	const struct safetensors_place *x = a, *y = b;

	return utf8_compare(x->name, x->name_size, y->name, y->name_size);
}

uint32_t safetensors_index_find(const struct safetensors_index *x, const char *name,
				size_t size)
{
	struct safetensors_place key = { .name = name, .name_size = (uint32_t)size };
	const struct safetensors_place *found =
		bsearch(&key, x->places, x->nplaces, sizeof(key), compare_names);

	return found ? found->file : UINT32_MAX;
}

static int add_place(struct safetensors_index *x, const struct index_entry *e, bool new_file)
{
	if (new_file) {
		x->files[x->nfiles] = text_copy(e->file.bytes, e->file.size);
		if (!x->files[x->nfiles])
			return -ENOMEM;
		x->nfiles++;
	}
	x->places[x->nplaces++] =
		(struct safetensors_place){ e->name.bytes, (uint32_t)e->name.size,
					    x->nfiles - 1 };
	return 0;
}

static int take_all(struct safetensors_index *x, struct vec *entries, struct parse_error *error)
{
	struct index_entry *e = entries->items;
	int rc = 0;

	x->places = calloc(entries->count + 1, sizeof(*x->places));
	x->files = calloc(entries->count + 1, sizeof(*x->files));
	if (!x->places || !x->files)
		return parse_error_set(error, -ENOMEM, "no memory");
	if (e)
		qsort(e, entries->count, sizeof(*e), compare_files);
	for (uint32_t i = 0; i < entries->count && !rc; i++)
		rc = add_place(x, &e[i], !i || compare_files(&e[i - 1], &e[i]));
	if (rc)
		return parse_error_set(error, rc, "no memory");
	qsort(x->places, x->nplaces, sizeof(*x->places), compare_names);
	for (uint32_t i = 1; i < x->nplaces; i++)
		if (!compare_names(&x->places[i - 1], &x->places[i]))
			return parse_error_set(error, -EBADMSG, "two tensors %.*s",
					       (int)u64_min(x->places[i].name_size, 100),
					       x->places[i].name);
	return 0;
}

int safetensors_index_open(struct safetensors_index *x, const struct blob *b,
			   struct parse_error *error)
{
	struct vec entries = { 0 };
	struct json json;
	int rc = 0;

	*x = (struct safetensors_index){ 0 };
	if (b->size > INDEX_MAX)
		return parse_error_set(error, -EFBIG, "an index of %" PRIu64 " bytes", b->size);
	x->text = calloc(1, b->size + 1);
	rc = x->text ? blob_read(b, 0, x->text, b->size, error)
		     : parse_error_set(error, -ENOMEM, "no memory");
	if (!rc) {
		json_init(&json, x->text, b->size, DEPTH_MAX, b->start, error);
		rc = read_object(&json, &entries);
	}
	if (!rc)
		rc = take_all(x, &entries, error);
	free(entries.items);
	if (rc)
		safetensors_index_close(x);
	return rc;
}

void safetensors_index_close(struct safetensors_index *x)
{
	for (uint32_t i = 0; i < x->nfiles; i++)
		free(x->files[i]);
	free(x->files);
	free(x->places);
	free(x->text);
	*x = (struct safetensors_index){ 0 };
}
