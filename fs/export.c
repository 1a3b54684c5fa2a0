/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/export.h"

#include "engine/base/dtype.h"
#include "engine/base/one-line.h"
#include "engine/base/vec.h"
#include "fs/state-list.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 1024 };

/* ---- what a part has ---- */

struct item { /* a tensor of some file */
	struct engine_address address;
	enum frag_dtype from, to;
	struct engine_param param;
	uint64_t numel;
	bool is_scalar; /* its shape is not the parameter's */
	uint32_t shard; /* in hf/ */
};

/* Two names of one tensor: `param`, which the file leaves out, as safetensors itself does, and
 * `of`.
 */
struct tied {
	struct engine_param param, of;
};

struct part_items {
	struct vec model;     /* of struct item: a master, or the parameter itself */
	struct vec optimizer; /* of struct item */
	struct vec tied;      /* of struct tied */
	bool with_coordinates;
};

/* Names of dtypes in a safetensors header; NULL: the format has no such dtype. */
static const char *const names[] = {
	[FRAG_F32] = "F32",         [FRAG_F64] = "F64",
	[FRAG_F16] = "F16",         [FRAG_BF16] = "BF16",
	[FRAG_F8_E4M3] = "F8_E4M3", [FRAG_F8_E5M2] = "F8_E5M2",
	[FRAG_I8] = "I8",           [FRAG_I16] = "I16",
	[FRAG_I32] = "I32",         [FRAG_I64] = "I64",
	[FRAG_U8] = "U8",           [FRAG_BOOL] = "BOOL",
	[FRAG_U16] = "U16",         [FRAG_U32] = "U32",
	[FRAG_U64] = "U64",         [FRAG_C64] = "C64",
	[FRAG_F8_E8M0] = "F8_E8M0", [FRAG_F8_E4M3FNUZ] = "F8_E4M3FNUZ",
	[FRAG_C32] = NULL,          [FRAG_F8_E5M2FNUZ] = "F8_E5M2FNUZ",
	[FRAG_C128] = NULL,
};

static bool has_name(enum frag_dtype dtype)
{
	return dtype > 0 && (size_t)dtype < ARRAY_SIZE(names) && names[dtype];
}

static int add_item(struct vec *items, uint32_t number, const struct engine_param *p,
		    const struct engine_state *s)
{
	size_t element = frag_dtype_size(s->dtype);
	struct item *item;

	if (!has_name(s->dtype))
		return 0;
	item = vec_add(items, sizeof(*item));
	if (!item)
		return -ENOMEM;
	*item = (struct item){ .address = { .kind = ENGINE_PARAM, .param = number },
			       .from = s->dtype,
			       .to = s->dtype,
			       .param = *p,
			       .numel = s->bytes / element };
	item->is_scalar = item->numel != p->numel;
	strcpy(item->address.key, s->key);
	return 0;
}

static bool is_own(const struct engine_param *p, const struct engine_state *s)
{
	return (s->flags & ENGINE_STATE_LP) || !strcmp(s->key, dtype_lp_key(p->dtype));
}

static bool is_optimizers(const struct engine_state *s)
{
	return strcmp(s->key, "fp32") && strcmp(s->key, "grad");
}

static int add_tied(struct engine *e, struct part_items *items, const struct engine_param *p)
{
	struct tied *tied = vec_add(&items->tied, sizeof(*tied));

	if (!tied)
		return -ENOMEM;
	tied->param = *p;
	return engine_param(e, p->same_as, &tied->of) ? 0 : -ENOENT;
}

static int add_param(struct engine *e, struct part_items *items, uint32_t number)
{
	struct engine_address at = { .kind = ENGINE_PARAM, .param = number };
	STATE_LIST(list);
	const struct engine_state *own = NULL, *fp32, *shown;
	struct engine_param p;
	int rc = state_list_fill(&list, e, &at);

	if (rc || !engine_param(e, number, &p))
		return rc == -ENOENT ? 0 : rc;
	if (p.same_as != number)
		return add_tied(e, items, &p);
	fp32 = state_list_find(&list, "fp32");
	for (int i = 0; i < list.count; i++)
		if (&list.states[i] != fp32 && is_own(&p, &list.states[i]))
			own = &list.states[i];
	/* an fp32 that is only the parameter's values, widened, is no master */
	shown = fp32 && !(own && (fp32->flags & ENGINE_STATE_WIDENED)) ? fp32 : own;
	if (shown)
		rc = add_item(&items->model, number, &p, shown);
	for (int i = 0; i < list.count && !rc; i++)
		if (&list.states[i] != own && is_optimizers(&list.states[i]))
			rc = add_item(&items->optimizer, number, &p, &list.states[i]);
	return rc;
}

static int list_items(struct engine *e, const struct engine_part *part,
		      struct part_items *items)
{
	int rc = 0;

	for (uint32_t i = 0; i < part->nparams && !rc; i++)
		rc = add_param(e, items, part->params + i);
	for (uint32_t i = 0; i < part->nbuffers && !rc; i++)
		rc = add_param(e, items, part->buffers + i);
	return rc;
}

/* ---- dtypes ---- */

static bool is_converted(enum frag_dtype dtype)
{
	return dtype == FRAG_F32 || dtype == FRAG_F16 || dtype == FRAG_BF16;
}

static void make_bf16(struct item *item)
{
	if (is_converted(item->from))
		item->to = FRAG_BF16;
}

/* Makes the item the model's own dtype if that has 16 bits, else bfloat16. */
static void make_hf(struct item *item)
{
	if (is_converted(item->from))
		item->to = item->param.dtype == FRAG_F16 ? FRAG_F16 : FRAG_BF16;
}

void export_convert(const struct export_tensor *x, void *to, const void *from, uint64_t n)
{
	size_t wide = frag_dtype_size(x->from), narrow = frag_dtype_size(x->to);
	uint32_t middle[CHUNK];

	if (x->from == x->to || x->from == FRAG_F32 || x->to == FRAG_F32) {
		dtype_convert(x->to, to, x->from, from, n);
		return;
	}
	for (uint64_t at = 0; at < n; at += CHUNK) {
		uint64_t some = u64_min(n - at, CHUNK);

		dtype_convert(FRAG_F32, middle, x->from, (const char *)from + at * wide, some);
		dtype_convert(x->to, (char *)to + at * narrow, FRAG_F32, middle, some);
	}
}

/* ---- one file ---- */

/* Orders tensors by the size of their elements, the largest first, so that all are aligned in
 * the file; tensors of one size by that of their states' elements, so that the states' bytes
 * are aligned too.
 */
static int by_size_of_element(const void *a, const void *b)
{
	const struct item *const *x = a, *const *y = b;
	size_t of_x = frag_dtype_size((*x)->to), of_y = frag_dtype_size((*y)->to);

	if (of_x == of_y) {
		of_x = frag_dtype_size((*x)->from);
		of_y = frag_dtype_size((*y)->from);
	}
	if (of_x != of_y)
		return of_x > of_y ? -1 : 1;
	return *x < *y ? -1 : *x > *y;
}

/* Writes a JSON string. */
static int put_text(FILE *out, const char *text)
{
	json_t *string = one_line_json(text);
	int rc = string && !json_dumpf(string, out, JSON_ENCODE_ANY) ? 0 : -ENOMEM;

	json_decref(string);
	return rc;
}

/* Writes the tensor's name, with the key behind it unless key is NULL. */
static int put_name(FILE *out, const struct engine_param *p, bool with_coordinate,
		    const char *key)
{
	bool has_coordinate = with_coordinate && *p->coordinate;
	CLEANUP(free) char *name = NULL;

	if (asprintf(&name, "%s%s%s%s%s", p->name, has_coordinate ? "@" : "",
		     has_coordinate ? p->coordinate : "", key ? "." : "", key ? key : "") < 0)
		name = NULL;
	return name ? put_text(out, name) : -ENOMEM;
}

/* Writes the names that the file leaves out, and the key of the tensors' states if all have the
 * same and none is converted.
 */
static int put_metadata(FILE *out, struct item *const *items, uint32_t n,
			const struct part_items *part)
{
	const struct tied *tied = part->tied.items;
	bool same = n;
	int rc = 0;

	for (uint32_t i = 0; i < n; i++)
		same &= items[i]->from == items[i]->to &&
			!strcmp(items[i]->address.key, items[0]->address.key);
	fputs("\"__metadata__\":{", out);
	for (uint32_t i = 0; i < part->tied.count && !rc; i++) {
		rc = put_name(out, &tied[i].param, part->with_coordinates, NULL);
		fputc(':', out);
		if (!rc)
			rc = put_name(out, &tied[i].of, part->with_coordinates, NULL);
		fputc(',', out);
	}
	fputs("\"format\":\"pt\"", out);
	if (same && !rc) {
		fputs(",\"state\":", out);
		rc = put_text(out, items[0]->address.key);
	}
	fputc('}', out);
	return rc;
}

static void put_shape(FILE *out, const struct item *item)
{
	uint32_t ndim = item->is_scalar ? item->numel != 1 : item->param.ndim;

	fputc('[', out);
	for (uint32_t d = 0; d < ndim; d++)
		fprintf(out, "%s%" PRIu64, d ? "," : "",
			item->is_scalar ? item->numel : item->param.shape[d]);
	fputc(']', out);
}

/* Writes the length before the header, and spaces behind it. */
static int finish_head(struct export_file *f, FILE *out)
{
	uint64_t end = (uint64_t)ftello(out);

	for (; end % 8; end++)
		fputc(' ', out);
	if (fclose(out))
		return -ENOMEM;
	for (int i = 0; i < 8; i++)
		f->head[i] = (char)((end - 8) >> 8 * i);
	f->head_bytes = end;
	return 0;
}

static int make_file(struct export_file *f, struct item **items, uint32_t n,
		     const struct part_items *part, bool with_keys)
{
	size_t size;
	FILE *out = open_memstream(&f->head, &size);
	uint64_t source = 0;
	int rc;

	if (!out)
		return -ENOMEM;
	f->tensors = calloc(n + 1, sizeof(*f->tensors));
	f->addresses = calloc(n + 1, sizeof(*f->addresses));
	if (!f->tensors || !f->addresses) {
		fclose(out);
		return -ENOMEM;
	}
	qsort(items, n, sizeof(*items), by_size_of_element);
	fputs("        {", out); /* 8 blanks, the room for the header's length */
	rc = put_metadata(out, items, n, part);
	for (; f->n < n && !rc; f->n++) {
		const struct item *item = items[f->n];
		uint64_t end = f->bytes + item->numel * frag_dtype_size(item->to);

		f->tensors[f->n] = (struct export_tensor){ item->from, item->to, source,
							   f->bytes, item->numel };
		f->addresses[f->n] = item->address;
		f->converts |= item->from != item->to;
		fputc(',', out);
		rc = put_name(out, &item->param, part->with_coordinates,
			      with_keys ? item->address.key : NULL);
		fprintf(out, ":{\"dtype\":\"%s\",\"shape\":", names[item->to]);
		put_shape(out, item);
		fprintf(out, ",\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", f->bytes, end);
		source += item->numel * frag_dtype_size(item->from);
		f->bytes = end;
	}
	f->source = source;
	fputc('}', out);
	if (rc) {
		fclose(out);
		return rc;
	}
	return finish_head(f, out);
}

/* Makes a file of the items that are in the shard; UINT32_MAX: of all items. */
static int make_some(struct export_file *f, const struct vec *items, uint32_t shard,
		     const struct part_items *part, bool with_keys)
{
	CLEANUP(free) struct item **chosen = calloc(items->count + 1, sizeof(*chosen));
	struct item *all = items->items;
	uint32_t n = 0;

	for (uint32_t i = 0; i < items->count && chosen; i++)
		if (shard == UINT32_MAX || all[i].shard == shard)
			chosen[n++] = &all[i];
	return chosen ? make_file(f, chosen, n, part, with_keys) : -ENOMEM;
}

const struct export_tensor *export_tensor_at(const struct export_file *f, uint64_t at)
{
	const struct export_tensor *x = f->tensors;

	return &x[LOWER_BOUND(f->n, i, x[i].at + x[i].numel * frag_dtype_size(x[i].to) <= at)];
}

/* ---- hf/ ---- */

void export_shard_name(uint32_t shard, uint32_t n, char out[EXPORT_NAME_MAX])
{
	snprintf(out, EXPORT_NAME_MAX, "model-%05u-of-%05u.safetensors", shard + 1, n);
}

static uint64_t bytes_of(const struct item *item)
{
	return item->numel * frag_dtype_size(item->to);
}

/* Gives each tensor its shard, and returns how many there are. */
static uint32_t divide(struct vec *items, uint64_t *total)
{
	struct item *item = items->items;
	uint64_t most, used = 0;
	uint32_t shard = 0;

	*total = 0;
	for (uint32_t i = 0; i < items->count; i++)
		*total += bytes_of(&item[i]);
	/* A shard is closed half full at the worst, so that twice the mean is enough. */
	most = u64_max(EXPORT_SHARD_BYTES, 2 * *total / EXPORT_SHARDS_MAX);
	for (uint32_t i = 0; i < items->count; i++) {
		if (used && used + bytes_of(&item[i]) > most && shard + 1 < EXPORT_SHARDS_MAX) {
			shard++;
			used = 0;
		}
		used += bytes_of(&item[i]);
		item[i].shard = shard;
	}
	return shard + 1;
}

static int make_index(struct export_file *f, const struct part_items *part, uint32_t n,
		      uint64_t total)
{
	const struct item *item = part->model.items;
	char shard[EXPORT_NAME_MAX];
	size_t size;
	FILE *out = open_memstream(&f->head, &size);
	int rc = 0;

	if (!out)
		return -ENOMEM;
	fprintf(out, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n", total);
	fputs("  \"weight_map\": {", out);
	for (uint32_t i = 0; i < part->model.count && !rc; i++) {
		export_shard_name(item[i].shard, n, shard);
		fputs(i ? ",\n    " : "\n    ", out);
		rc = put_name(out, &item[i].param, part->with_coordinates, NULL);
		fprintf(out, ": \"%s\"", shard);
	}
	fputs("\n  }\n}\n", out);
	if (fclose(out))
		return -ENOMEM;
	f->head_bytes = size;
	return rc;
}

/* ---- all files ---- */

static void free_set(struct export_set *set)
{
	for (uint32_t i = 0; i < set->nfiles; i++) {
		free(set->files[i].head);
		free(set->files[i].tensors);
		free(set->files[i].addresses);
	}
	free(set);
}

void export_put(struct export_set *set)
{
	if (set && atomic_fetch_sub(&set->refs, 1) == 1)
		free_set(set);
}

static void make_all(struct part_items *part, void (*make)(struct item *item))
{
	struct item *item = part->model.items;

	for (uint32_t i = 0; i < part->model.count; i++)
		make(&item[i]);
}

static int make_set(struct part_items *part, struct export_set **out)
{
	struct export_set *set;
	uint64_t total;
	uint32_t nshards;
	int rc;

	make_all(part, make_hf);
	nshards = divide(&part->model, &total);
	set = calloc(1, sizeof(*set) + (EXPORT_SHARDS + nshards) * sizeof(set->files[0]));
	if (!set)
		return -ENOMEM;
	set->refs = 1;
	set->nfiles = EXPORT_SHARDS + nshards;
	rc = make_index(&set->files[EXPORT_INDEX], part, nshards, total);
	for (uint32_t i = 0; i < nshards && !rc; i++)
		rc = make_some(&set->files[EXPORT_SHARDS + i], &part->model, i, part, false);
	make_all(part, make_bf16);
	if (!rc)
		rc = make_some(&set->files[EXPORT_BF16], &part->model, UINT32_MAX, part, false);
	for (uint32_t i = 0; i < part->model.count; i++) {
		struct item *item = part->model.items;

		item[i].to = item[i].from;
	}
	if (!rc)
		rc = make_some(&set->files[EXPORT_MODEL], &part->model, UINT32_MAX, part,
			       false);
	if (!rc)
		rc = make_some(&set->files[EXPORT_OPTIMIZER], &part->optimizer, UINT32_MAX,
			       part, true);
	if (rc)
		free_set(set);
	else
		*out = set;
	return rc;
}

static int build(struct engine *e, const struct engine_part *part, struct export_set **set)
{
	struct part_items items = { .with_coordinates = !part->name };
	uint64_t epoch = engine_epoch(e);
	int rc = list_items(e, part, &items);

	if (!rc)
		rc = make_set(&items, set);
	if (!rc)
		(*set)->epoch = epoch;
	free(items.model.items);
	free(items.optimizer.items);
	free(items.tied.items);
	return rc;
}

int exports_init(struct exports *x, struct engine *engine, uint32_t nparts)
{
	*x = (struct exports){ .engine = engine, .nparts = nparts };
	pthread_mutex_init(&x->lock, NULL);
	x->newest = calloc(nparts, sizeof(*x->newest));
	return x->newest ? 0 : -ENOMEM;
}

void exports_fini(struct exports *x)
{
	for (uint32_t i = 0; i < x->nparts && x->newest; i++)
		export_put(x->newest[i]);
	free(x->newest);
	pthread_mutex_destroy(&x->lock);
}

int exports_get(struct exports *x, uint32_t number, const struct engine_part *part,
		struct export_set **set)
{
	struct export_set *s;
	int rc;

	pthread_mutex_lock(&x->lock);
	s = x->newest[number];
	if (s && s->epoch != engine_epoch(x->engine))
		s = NULL;
	if (s)
		atomic_fetch_add(&s->refs, 1);
	pthread_mutex_unlock(&x->lock);
	if (s) {
		*set = s;
		return 0;
	}
	/* Without the lock: listing the states may ask ranks. */
	rc = build(x->engine, part, set);
	if (rc)
		return rc;
	atomic_fetch_add(&(*set)->refs, 1);
	pthread_mutex_lock(&x->lock);
	s = x->newest[number];
	x->newest[number] = *set;
	pthread_mutex_unlock(&x->lock);
	export_put(s);
	return 0;
}
