/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/dcp-groups.h"
#include "engine/checkpoint/table/table-files.h"
#include "engine/checkpoint/formats/torch-hypers.h"
#include "engine/checkpoint/parse/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WHOLE "param_groups"
#define GROUPS WHOLE "."

/* An entry of the optimizer's groups, "optim.param_groups.3.lr". */
struct part {
	const struct dcp_name *name;
	uint32_t item;
	uint32_t section; /* bytes before GROUPS */
	uint32_t group;
	const char *key; /* the name's end */
	size_t key_size;
};

struct adding {
	const struct dcp_names *names;
	struct dcp_files *files;
	struct table *table;
	double *step;
	struct part *parts; /* of groups, in their order */
	uint32_t nparts;
	uint32_t *ranks;
};

void dcp_groups_step(double *step, double value)
{
	if (value > *step && value < 1e15)
		*step = value;
}

/* ---- names ---- */

static bool take_part(struct part *p, const struct dcp_name *x)
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

static int compare_groups(const struct part *p, const struct part *q)
{
	int order = utf8_compare(p->name->name, p->section, q->name->name, q->section);

	return order ? order : (p->group > q->group) - (p->group < q->group);
}

static int compare_parts(const void *a, const void *b)
{
	const struct part *p = a, *q = b;
	int order = compare_groups(p, q);

	return order ? order : (p->item > q->item) - (p->item < q->item);
}

/* ---- one ---- */

/* Opens the archive of item i.  1: it cannot be read as it is; the table has a note. */
static int open_item(struct adding *a, uint32_t i, struct torch_source *out)
{
	struct parse_error error = { "" };
	struct dcp_place place;
	struct dcp_item item;
	int rc = dcp_item(a->names->metadata, i, &item, &error);

	if (!rc)
		rc = dcp_bytes(a->names->metadata, &item, &place, &error);
	if (rc)
		return table_refuse_file(a->table, ".metadata", rc, &error);
	return dcp_files_open(a->files, &a->names->items[i], &place, out);
}

/* Adds the parameters that a list names to the group. */
static int add_members(struct adding *a, const struct part *p, uint32_t group,
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

static int add_part(struct adding *a, const struct part *p, uint32_t group)
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

static int add_group(struct adding *a)
{
	return table_add_group(a->table, "dcp", a->table->nranks ? a->table->nranks : 1, 1, 1,
			       a->ranks);
}

static int add_groups(struct adding *a)
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

/* ---- all in one, as torch before 2.3 wrote them ---- */

static bool take_whole(struct part *p, const struct dcp_name *x)
{
	size_t length = strlen(WHOLE);

	if (x->size < length || memcmp(x->name + x->size - length, WHOLE, length) != 0)
		return false;
	p->name = x;
	p->section = (uint32_t)(x->size - length);
	return !p->section || x->name[p->section - 1] == '.';
}

static int add_dict(struct adding *a, const struct part *p, const struct torch_source *s,
		    uint32_t dict)
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

static int add_whole(struct adding *a, const struct part *p)
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

/* ---- the others ---- */

/* Sets the step from an entry that is the checkpoint's own, which counts for more than what an
 * optimizer has counted.
 */
static int add_other(struct adding *a, uint32_t i)
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
		*a->step = -1;
		dcp_groups_step(a->step, value);
	} else {
		dcp_files_skip(a->files, x, "it is no number");
	}
	torch_source_close(&s);
	return 0;
}

static int add_all(struct adding *a)
{
	int rc = 0;

	for (uint32_t i = 0; i < a->table->nranks; i++)
		a->ranks[i] = i;
	for (uint32_t i = 0; i < a->names->count && !rc; i++) {
		struct part *p = &a->parts[a->nparts];

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

int dcp_groups_add(const struct dcp_names *names, struct dcp_files *files, struct table *t,
		   double *step)
{
	CLEANUP(free) struct part *parts = calloc((size_t)names->count + 1, sizeof(*parts));
	CLEANUP(free) uint32_t *ranks = calloc((size_t)t->nranks + 1, sizeof(*ranks));
	struct adding a = { .names = names,
			    .files = files,
			    .table = t,
			    .step = step,
			    .parts = parts,
			    .ranks = ranks };

	return parts && ranks ? add_all(&a) : -ENOMEM;
}
