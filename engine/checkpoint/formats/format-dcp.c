/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/base/vec.h"
#include "engine/checkpoint/formats/dcp-names.h"
#include "engine/checkpoint/formats/format.h"
#include "engine/checkpoint/formats/torch-hypers.h"
#include "engine/checkpoint/formats/torch-source.h"
#include "engine/checkpoint/parse/torch-unsupported.h"
#include "engine/checkpoint/parse/utf8.h"
#include "engine/checkpoint/table/table-files.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* torch.distributed.checkpoint: .metadata and the files that it names. */

#define METADATA ".metadata"

/* ---- files ----
 *
 * The files that a .metadata names, opened when they are first needed, and the archives in
 * them.  Functions return results as in table.h.
 */

struct dcp_files {
	const struct folder *folder;
	struct table *table;
	struct vec files; /* struct dcp_file, of opened files, sorted by name */
};

struct dcp_file {
	uint32_t number; /* in the table */
	uint32_t rank;
	struct blob blob;
};

static void dcp_files_close(struct dcp_files *f)
{
	free(f->files.items);
	f->files = (struct vec){ 0 };
}

static struct dcp_file *file_at(const struct dcp_files *f, uint32_t i)
{
	return (struct dcp_file *)f->files.items + i;
}

static int compare_name(const struct dcp_files *f, uint64_t i, const char *name)
{
	return strcmp(f->table->files[file_at(f, (uint32_t)i)->number].name, name);
}

static int add(struct dcp_files *f, const char *name, uint32_t i)
{
	struct blob blob;
	int number = table_files_open(f->table, f->folder, name, name, &blob), end = 0;
	unsigned rank, part;

	if (number < 0)
		return number;
	/* "__3_0.distcp" is rank 3's; a file with another name is rank 0's. */
	if (sscanf(name, "__%5u_%9u.distcp%n", &rank, &part, &end) != 2 || !end || name[end] ||
	    rank >= TABLE_RANKS_MAX)
		rank = 0;
	if (!vec_add(&f->files, sizeof(struct dcp_file)))
		return -ENOMEM;
	memmove(file_at(f, i + 1), file_at(f, i),
		(f->files.count - 1 - i) * sizeof(struct dcp_file));
	*file_at(f, i) = (struct dcp_file){ (uint32_t)number, rank, blob };
	return 0;
}

/* Notes in the table why x is not shown. */
static void dcp_files_skip(struct dcp_files *f, const struct dcp_name *x, const char *why)
{
	char name[DCP_NAME_MAX + 1];

	*(char *)mempcpy(name, x->name, x->size) = '\0';
	table_skip(f->table, name, "%s", why);
}

/* Opens the archive of x at a place; torch_source_close() closes it.
 * 1: the archive is compressed or otherwise transformed; the table has a note.
 */
static int dcp_files_open(struct dcp_files *f, const struct dcp_name *x,
			  const struct dcp_metadata_place *place, struct torch_source *out)
{
	char name[NAME_MAX + 1];
	struct parse_error error = { "" };
	const struct dcp_file *file;
	struct blob part;
	uint32_t i;
	int rc = 0;

	if (place->transformed) {
		dcp_files_skip(f, x, "it is compressed, or otherwise transformed");
		return 1;
	}
	if (place->file_size > NAME_MAX || memchr(place->file, '\0', place->file_size))
		return table_refuse(f->table, -EINVAL, "%.*s... is no name of a file there",
				    (int)u64_min(place->file_size, 100), place->file);
	*(char *)mempcpy(name, place->file, place->file_size) = '\0';
	i = (uint32_t)LOWER_BOUND(f->files.count, k, compare_name(f, k, name) < 0);
	if (i == f->files.count || compare_name(f, i, name))
		rc = add(f, name, i);
	if (rc)
		return rc;
	file = file_at(f, i);
	rc = blob_part(&file->blob, place->at, place->length, &part, &error);
	if (rc)
		return table_files_refuse(f->table, name, rc, &error);
	return torch_source_open_part(out, f->table, file->number, &part, file->rank);
}

/* ---- groups ----
 *
 * The entries of a .metadata that are no tensors: hyper-parameters of the optimizer's groups,
 * such as "optim.param_groups.0.lr", and the step.
 */

#define WHOLE "param_groups"
#define GROUPS WHOLE "."

/* An entry of the optimizer's groups, "optim.param_groups.3.lr". */
struct group_entry {
	const struct dcp_name *name;
	uint32_t item;
	uint32_t section; /* bytes before GROUPS */
	uint32_t group;
	const char *key; /* the name's end */
	size_t key_size;
};

struct entries_reader {
	const struct dcp_names *names;
	struct dcp_files *files;
	struct table *table;
	double *step;
	struct group_entry *parts; /* entries of groups, sorted by group */
	uint32_t nparts;
	uint32_t *ranks;
};

/* Sets *step to the value if the value is higher and can be a step. */
static void dcp_groups_step(double *step, double value)
{
	if (value > *step && value < 1e15)
		*step = value;
}

static bool take_part(struct group_entry *p, const struct dcp_name *x)
{
	const char *rest = memmem(x->name, x->size, GROUPS, strlen(GROUPS));
	const char *end = x->name + x->size;
	uint32_t digits = 0;

	p->name = x;
	p->section = rest ? (uint32_t)(rest - x->name) : 0;
	if (!rest || (p->section && rest[-1] != '.'))
		return false;
	rest += strlen(GROUPS);
	for (p->group = 0; rest < end && digits < 6 && isdigit((unsigned char)*rest); digits++)
		p->group = p->group * 10 + (uint32_t)(*rest++ - '0');
	p->key = rest + 1;
	p->key_size = rest < end ? (size_t)(end - p->key) : 0;
	return digits && rest < end && *rest == '.' && p->key_size &&
	       p->key_size <= FRAG_KEY_MAX && !memchr(p->key, '.', p->key_size);
}

static int compare_groups(const struct group_entry *p, const struct group_entry *q)
{
	int order = utf8_compare(p->name->name, p->section, q->name->name, q->section);

	return order ? order : (p->group > q->group) - (p->group < q->group);
}

static int compare_parts(const void *a, const void *b)
{
	const struct group_entry *p = a, *q = b;
	int order = compare_groups(p, q);

	return order ? order : (p->item > q->item) - (p->item < q->item);
}

/* Opens the archive of item i.
 * 1: the archive cannot be read as it is; the table has a note.
 */
static int open_item(struct entries_reader *a, uint32_t i, struct torch_source *out)
{
	struct parse_error error = { "" };
	struct dcp_metadata_place place;
	struct dcp_metadata_item item;
	int rc = dcp_metadata_item(a->names->metadata, i, &item, &error);

	if (!rc)
		rc = dcp_metadata_bytes(a->names->metadata, &item, &place, &error);
	if (rc)
		return table_files_refuse(a->table, ".metadata", rc, &error);
	return dcp_files_open(a->files, &a->names->items[i], &place, out);
}

/* Adds the parameters that a list names to the group. */
static int add_members(struct entries_reader *a, const struct group_entry *p, uint32_t group,
		       const struct pickle *pickle, uint32_t list)
{
	int rc = 0;

	for (uint32_t i = 0; i < pickle_count(pickle, list) && !rc; i++) {
		size_t size = 0;
		const char *name = pickle_text(pickle, pickle_item(pickle, list, i), &size);
		const struct dcp_name *found;
		uint32_t at = UINT32_MAX;

		if (name && size <= DCP_NAME_MAX)
			at = dcp_names_find(a->names, p->name->name, p->section, name, size);
		found = at == UINT32_MAX ? NULL : &a->names->items[at];
		if (found && found->is_added &&
		    a->table->tensors[found->tensor].group == TABLE_NONE)
			rc = table_add_member(a->table, group, found->tensor);
	}
	return rc;
}

static int add_part(struct entries_reader *a, const struct group_entry *p, uint32_t group)
{
	char key[FRAG_KEY_MAX + 1];
	struct torch_source s;
	int rc = open_item(a, p->item, &s);

	if (rc)
		return rc == 1 ? 0 : rc;
	*(char *)mempcpy(key, p->key, p->key_size) = '\0';
	if (!strcmp(key, "params"))
		rc = add_members(a, p, group, s.torch.pickle, s.root);
	else if (!memchr(key, '/', p->key_size) && *key != '.')
		rc = torch_hypers_add_one(&s, group, key, s.root);
	torch_source_close(&s);
	return rc;
}

static int add_group(struct entries_reader *a)
{
	return table_add_group(a->table, "dcp", a->table->nranks ? a->table->nranks : 1, 1, 1,
			       a->ranks);
}

static int add_groups(struct entries_reader *a)
{
	int group = -1, rc = 0;

	qsort(a->parts, a->nparts, sizeof(*a->parts), compare_parts);
	for (uint32_t i = 0; i < a->nparts && !rc; i++) {
		if (!i || compare_groups(&a->parts[i - 1], &a->parts[i]))
			group = add_group(a);
		rc = group < 0 ? group : add_part(a, &a->parts[i], (uint32_t)group);
	}
	return rc;
}

/* ---- groups in one item, as torch before 2.3 wrote them ---- */

static bool take_whole(struct group_entry *p, const struct dcp_name *x)
{
	size_t length = strlen(WHOLE);

	if (x->size < length || memcmp(x->name + x->size - length, WHOLE, length) != 0)
		return false;
	p->name = x;
	p->section = (uint32_t)(x->size - length);
	return !p->section || x->name[p->section - 1] == '.';
}

static int add_dict(struct entries_reader *a, const struct group_entry *p,
		    const struct torch_source *s, uint32_t dict)
{
	const struct pickle *pickle = s->torch.pickle;
	int group, rc;

	if (pickle_kind(pickle, dict) != PICKLE_DICT)
		return 0;
	group = add_group(a);
	if (group < 0)
		return group;
	rc = torch_hypers_add(s, (uint32_t)group, dict);
	return rc ? rc
		  : add_members(a, p, (uint32_t)group, pickle,
				pickle_get(pickle, dict, "params"));
}

static int add_whole(struct entries_reader *a, const struct group_entry *p)
{
	struct torch_source s;
	int rc = open_item(a, p->item, &s);

	if (rc)
		return rc == 1 ? 0 : rc;
	if (pickle_kind(s.torch.pickle, s.root) != PICKLE_LIST)
		dcp_files_skip(a->files, p->name, "it is no list");
	for (uint32_t i = 0; i < pickle_count(s.torch.pickle, s.root) && !rc; i++)
		rc = add_dict(a, p, &s, pickle_item(s.torch.pickle, s.root, i));
	torch_source_close(&s);
	return rc;
}

/* ---- other items ---- */

/* Sets the step from an entry that is the checkpoint's own; it counts for more than the steps
 * of optimizers.
 */
static int add_other(struct entries_reader *a, uint32_t i)
{
	static const char *const names[] = { "step", "global_step", "global_steps",
					     "iteration" };
	const struct dcp_name *x = &a->names->items[i];
	struct torch_source s;
	bool is_step = false;
	double value;
	int rc;

	for (size_t k = 0; k < ARRAY_SIZE(names); k++)
		is_step |= x->size == strlen(names[k]) && !memcmp(x->name, names[k], x->size);
	if (!is_step) {
		dcp_files_skip(a->files, x, "it is no tensor");
		return 0;
	}
	rc = open_item(a, i, &s);
	if (rc)
		return rc == 1 ? 0 : rc;
	if (torch_hypers_number(&s, s.root, &value)) {
		/* replaces an optimizer's step, even a higher one */
		*a->step = -1;
		dcp_groups_step(a->step, value);
	} else {
		dcp_files_skip(a->files, x, "it is no number");
	}
	torch_source_close(&s);
	return 0;
}

static int add_parts(struct entries_reader *a)
{
	int rc = 0;

	for (uint32_t i = 0; i < a->table->nranks; i++)
		a->ranks[i] = i;
	for (uint32_t i = 0; i < a->names->count && !rc; i++) {
		struct group_entry *p = &a->parts[a->nparts];

		if (!a->names->items[i].is_taken || a->names->items[i].is_tensor)
			continue;
		p->item = i;
		if (take_part(p, &a->names->items[i]))
			a->nparts++;
		else if (take_whole(p, &a->names->items[i]))
			rc = add_whole(a, p);
		else
			rc = add_other(a, i);
	}
	return rc ? rc : add_groups(a);
}

/* Adds the groups to the table, which has its tensors.  The table notes items that are left
 * out.
 */
static int dcp_groups_add(const struct dcp_names *names, struct dcp_files *files,
			  struct table *t, double *step)
{
	CLEANUP(free)
	struct group_entry *parts = calloc((size_t)names->count + 1, sizeof(*parts));
	CLEANUP(free) uint32_t *ranks = calloc((size_t)t->nranks + 1, sizeof(*ranks));
	struct entries_reader a = { .names = names,
				    .files = files,
				    .table = t,
				    .step = step,
				    .parts = parts,
				    .ranks = ranks };

	return parts && ranks ? add_parts(&a) : -ENOMEM;
}

/* ---- the table ---- */

enum { ALL_RUNS_MAX = 1 << 20 }; /* pieces of all tensors that are not contiguous */

struct dcp_loader {
	const struct folder *folder;
	struct table *table;
	struct dcp_metadata metadata;
	struct dcp_names names;
	struct dcp_files files;
	uint64_t runs; /* pieces so far of chunks that are not contiguous */
	double step;   /* the highest step that was found; below 0: none */
};

static bool knows(const struct folder *f)
{
	return !f->only && folder_has(f, METADATA);
}

static int refuse(struct dcp_loader *l, int rc, const struct parse_error *error)
{
	return table_files_refuse(l->table, METADATA, rc, error);
}

static void see_untaken(void *arg, const struct dcp_metadata_item *item, const char *why)
{
	struct dcp_loader *l = arg;

	table_note(l->table, "skipped %s", why); /* `why` begins with the tensor's name */
}

/* ---- chunks ---- */

/* Checks a chunk against its item.
 * 1: the chunk is not taken; the table has a note.
 */
static int check_chunk(struct dcp_loader *l, const struct dcp_name *x,
		       const struct dcp_metadata_item *item,
		       const struct dcp_metadata_chunk *chunk, const struct torch_source *s,
		       struct torchfile_tensor *out)
{
	char why[TORCH_UNSUPPORTED_MAX];
	struct parse_error error;
	int rc = torchfile_tensor(&s->torch, s->root, out, &error);

	if (rc && torch_unsupported(s->torch.pickle, s->root, why)) {
		dcp_files_skip(&l->files, x, why);
		return 1;
	}
	if (rc)
		return table_files_refuse(l->table, s->name, rc, &error);
	if (out->tensor.dtype != item->dtype || out->tensor.ndim != item->ndim ||
	    memcmp(out->tensor.shape, chunk->sizes, item->ndim * sizeof(*chunk->sizes)))
		return table_refuse(l->table, -EINVAL, "%s: a chunk of %.*s is not as %s says",
				    s->name, (int)u64_min(x->size, 100), x->name, METADATA);
	l->runs += out->tensor.contiguous ? 0 : torch_source_runs(out);
	if (torch_source_fits(out) && l->runs <= ALL_RUNS_MAX)
		return 0;
	dcp_files_skip(&l->files, x, "its elements are scattered over the file");
	return 1;
}

static int add_chunk(struct dcp_loader *l, const struct dcp_name *x,
		     const struct dcp_metadata_item *item,
		     const struct dcp_metadata_chunk *chunk)
{
	struct torchfile_tensor tensor;
	struct torch_source s;
	int rc = dcp_files_open(&l->files, x, &chunk->place, &s);

	if (rc)
		return rc;
	rc = check_chunk(l, x, item, chunk, &s, &tensor);
	if (!rc)
		rc = torch_source_add_box(&s, &tensor, chunk->offsets);
	torch_source_close(&s);
	return rc;
}

static int add_chunks(struct dcp_loader *l, const struct dcp_name *x,
		      const struct dcp_metadata_item *item)
{
	struct parse_error error = { "" };
	struct dcp_metadata_chunk chunk;
	int rc = 0;

	for (uint32_t i = 0; i < item->nchunks && !rc; i++) {
		rc = dcp_metadata_chunk(&l->metadata, item, i, &chunk, &error);
		if (rc)
			return refuse(l, rc, &error);
		if (!chunk.is_empty)
			rc = add_chunk(l, x, item, &chunk);
	}
	return rc;
}

/* ---- parameters ---- */

/* Adds the element of a scalar, which need not have the parameter's dimensions. */
static int add_element(struct dcp_loader *l, const struct dcp_name *x,
		       const struct dcp_metadata_item *item,
		       const struct dcp_metadata_chunk *chunk)
{
	struct torchfile_tensor tensor;
	struct torch_source s;
	double step;
	int rc = dcp_files_open(&l->files, x, &chunk->place, &s);

	if (rc)
		return rc;
	rc = check_chunk(l, x, item, chunk, &s, &tensor);
	if (!rc)
		rc = torch_source_add_pieces(&s, &tensor, 0);
	if (!rc && x->key_size == 4 && !memcmp(x->key, "step", 4) &&
	    torch_hypers_number(&s, s.root, &step))
		dcp_groups_step(&l->step, step);
	torch_source_close(&s);
	return rc;
}

static int add_scalar(struct dcp_loader *l, const struct dcp_name *x,
		      const struct dcp_metadata_item *item, const char *key)
{
	struct parse_error error = { "" };
	struct dcp_metadata_chunk chunk = { .is_empty = true };
	int rc = table_add_scalar(l->table, key, item->dtype);

	if (rc < 0)
		return rc;
	rc = item->nchunks == 1 ? dcp_metadata_chunk(&l->metadata, item, 0, &chunk, &error) : 0;
	if (rc)
		return refuse(l, rc, &error);
	if (!chunk.is_empty)
		return add_element(l, x, item, &chunk);
	dcp_files_skip(&l->files, x, "it is not in one piece");
	return 1;
}

static int add_item(struct dcp_loader *l, uint32_t i, const char *key)
{
	const struct dcp_name *x = &l->names.items[i];
	struct parse_error error = { "" };
	struct dcp_metadata_item item;
	int rc = dcp_metadata_item(&l->metadata, i, &item, &error);

	if (rc)
		return refuse(l, rc, &error);
	if (x->key && x->is_scalar) {
		rc = add_scalar(l, x, &item, key);
	} else {
		rc = table_add_state(l->table, key, item.dtype);
		if (rc >= 0)
			rc = add_chunks(l, x, &item);
	}
	if (rc == 1) /* the tensor was skipped, with a note */
		table_drop_state(l->table);
	return rc < 0 ? rc : 0;
}

static bool has_master(struct dcp_loader *l, const struct dcp_name *param)
{
	for (uint32_t i = 0; i < param->nstates; i++) {
		const struct dcp_name *x = &l->names.items[l->names.states[param->states + i]];

		if (x->key_size == 4 && !memcmp(x->key, "fp32", 4))
			return true;
	}
	return false;
}

static int add_states(struct dcp_loader *l, const struct dcp_name *param)
{
	int rc = 0;

	for (uint32_t i = 0; i < param->nstates && !rc; i++) {
		uint32_t state = l->names.states[param->states + i];
		const struct dcp_name *x = &l->names.items[state];
		char key[FRAG_KEY_MAX + 1];

		*(char *)mempcpy(key, x->key, x->key_size) = '\0';
		rc = add_item(l, state, key);
	}
	return rc;
}

static int add_param(struct dcp_loader *l, uint32_t i)
{
	struct dcp_name *x = &l->names.items[i];
	char name[DCP_NAME_MAX + 1];
	struct parse_error error = { "" };
	struct dcp_metadata_item item;
	int rc = dcp_metadata_item(&l->metadata, i, &item, &error);

	if (rc)
		return refuse(l, rc, &error);
	*(char *)mempcpy(name, x->name + x->cut, x->size - x->cut) = '\0';
	if (x->size - x->cut > FRAG_NAME_MAX) {
		table_skip(l->table, name, "its name is too long");
		return 0;
	}
	rc = table_add_tensor(l->table, &(struct table_spec){ .name = name,
							      .dtype = item.dtype,
							      .ndim = item.ndim,
							      .shape = item.shape });
	x->tensor = (uint32_t)rc;
	x->is_added = rc >= 0;
	if (rc >= 0)
		rc = add_item(l, i,
			      has_master(l, x) ? dtype_lp_key(item.dtype)
					       : table_own_key(item.dtype));
	if (!rc)
		rc = add_states(l, x);
	if (!rc && !table_has_states(l->table)) {
		table_drop_tensor(l->table);
		x->is_added = false;
	}
	return rc;
}

/* ---- the checkpoint ---- */

static int add_all(struct dcp_loader *l)
{
	int rc = 0;

	for (uint32_t i = 0; i < l->names.count && !rc; i++)
		if (l->names.items[i].is_tensor && !l->names.items[i].key)
			rc = add_param(l, i);
	if (!rc)
		rc = dcp_groups_add(&l->names, &l->files, l->table, &l->step);
	if (!rc && l->step >= 0)
		table_set_step(l->table, (uint64_t)l->step);
	return rc;
}

static int fill_by_names(struct dcp_loader *l)
{
	struct parse_error error = { "" };
	int rc = dcp_names_make(&l->names, &l->metadata, see_untaken, l, &error);

	if (rc)
		return refuse(l, rc, &error);
	if (l->names.prefix_size && !l->names.mixed)
		table_note(l->table, "prefix %.*s", (int)u64_min(l->names.prefix_size, 200),
			   l->names.prefix);
	rc = add_all(l);
	dcp_names_free(&l->names);
	return rc;
}

static int open_metadata(struct dcp_loader *l)
{
	struct parse_error error = { "" };
	struct blob blob;
	struct stat st;
	CLEANUP(close) int fd = folder_open_file(l->folder, METADATA, &st);
	int rc;

	if (fd < 0)
		return folder_failed(METADATA, fd, l->table->why, sizeof(l->table->why));
	rc = blob_of_file(fd, &blob, &error);
	if (!rc)
		rc = dcp_metadata_open(&l->metadata, &blob, &error);
	return rc ? refuse(l, rc, &error) : 0;
}

static int fill(const struct folder *f, struct table *t)
{
	struct dcp_loader l = { .folder = f, .table = t, .step = -1 };
	int rc = open_metadata(&l);

	if (rc)
		return rc;
	l.files = (struct dcp_files){ .folder = f, .table = t };
	rc = fill_by_names(&l);
	dcp_files_close(&l.files);
	dcp_metadata_close(&l.metadata);
	return rc;
}

const struct format format_dcp = {
	.name = "dcp",
	.looks = METADATA " and *.distcp",
	.knows = knows,
	.fill = fill,
};
