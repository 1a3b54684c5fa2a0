/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/table/table-files.h"
#include "engine/checkpoint/formats/format.h"
#include "engine/checkpoint/formats/torch-names.h"
#include "engine/checkpoint/formats/torch-source.h"

#include <errno.h>
#include <string.h>

/* Reads a file of torch.save: every tensor in it, named by the keys that lead to it. */

static const char *const suffixes[] = { ".pt", ".pth", ".bin", ".ckpt" };

static bool is_torch_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++)
		if (folder_ends_in(name, suffixes[i]))
			return true;
	return false;
}

/* Whether the file begins as a zip archive, or as a pickle of protocol 2 or later. */
static bool begins_as_torch(const struct folder *f)
{
	uint8_t first[4] = { 0 };

	return pread(f->only_fd, first, sizeof(first), 0) == sizeof(first) &&
	       (!memcmp(first, "PK\3\4", 4) || (first[0] == 0x80 && first[1] >= 2));
}

/* Returns the name of the one torch.save file in a folder; NULL: none, or several. */
static const char *find_only(const struct folder *f)
{
	const char *found = NULL;

	if (f->only)
		return f->only;
	for (size_t i = 0; i < f->count; i++) {
		if (!is_torch_name(f->names[i]))
			continue;
		if (found)
			return NULL;
		found = f->names[i];
	}
	return found;
}

static bool knows(const struct folder *f)
{
	const char *name = find_only(f);

	return name && (!f->only || is_torch_name(name) || begins_as_torch(f));
}

/* ---- tensors ---- */

struct filling {
	struct table *table;
	struct torch_source source;
	uint64_t runs; /* of tensors that are not contiguous, so far */
	struct torch_names names;
};

enum { ALL_RUNS_MAX = 1 << 20 };

/* Returns the reason why a tensor is not shown; NULL: it is. */
static const char *unfit(struct filling *l, const struct torch_name *n,
			 const struct torchfile_tensor *x)
{
	if (n->twice)
		return "another tensor has that name";
	if (x->tensor.contiguous)
		return NULL;
	if (!torch_source_fits(x) || l->runs > ALL_RUNS_MAX)
		return "its elements are scattered over the file";
	l->runs += torch_source_runs(x);
	return NULL;
}

static int add_tensor(struct filling *l, const struct torch_name *n,
		      const struct torchfile_tensor *x)
{
	struct table_spec spec = { .name = n->name,
				   .dtype = x->tensor.dtype,
				   .ndim = x->tensor.ndim,
				   .shape = x->tensor.shape,
				   .buffer = n->buffer };
	int number = table_add_tensor(l->table, &spec), rc;

	if (number < 0)
		return number;
	rc = torch_source_add_state(&l->source, NULL, x);
	return rc < 0 ? rc : number;
}

static int add(struct filling *l, struct torch_name *n)
{
	struct torchfile_tensor x;
	struct parse_error error = { "" };
	const char *why;
	int rc = torchfile_tensor(&l->source.torch, n->node, &x, &error);

	if (rc && rc != -EOPNOTSUPP)
		return table_refuse_file(l->table, l->source.name, rc, &error);
	if (!rc && !n->twice && n->same != n && n->same->added) {
		rc = table_add_alias(l->table, n->name, n->same->tensor);
		return rc < 0 ? rc : 0;
	}
	why = rc ? error.why : unfit(l, n, &x);
	if (why) {
		table_skip(l->table, n->name, "%s", why);
		return 0;
	}
	rc = add_tensor(l, n, &x);
	n->added = rc >= 0;
	n->tensor = (uint32_t)rc;
	return rc < 0 ? rc : 0;
}

/* ---- the file ---- */

static void take_step(struct filling *l)
{
	static const char *const keys[] = { "global_steps", "global_step", "step",
					    "iteration" };
	const struct pickle *p = l->source.torch.pickle;
	int64_t step = -1;

	for (size_t i = 0; i < ARRAY_SIZE(keys) && step < 0; i++)
		pickle_int(p, pickle_get(p, l->source.root, keys[i]), &step);
	if (step >= 0)
		table_set_step(l->table, (uint64_t)step);
}

static int add_all(struct filling *l)
{
	const char *name = l->source.name, *dot = strrchr(name, '.');
	/* The name of a tensor that is all of the file. */
	CLEANUP(free)
	char *alone = strndup(name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
	int rc = alone ? torch_names_find(&l->names, &l->source.torch, alone, l->table)
		       : -ENOMEM;

	for (uint32_t i = 0; i < l->names.count && !rc; i++)
		rc = add(l, &l->names.items[i]);
	torch_names_free(&l->names);
	return rc;
}

static int fill(const struct folder *f, struct table *t)
{
	struct filling l = { .table = t };
	const char *name = find_only(f);
	int rc;

	if (!name)
		return table_refuse(t, -EINVAL, "there is not one file of torch.save");
	rc = torch_source_open(&l.source, t, f, name, 0);
	if (rc)
		return rc;
	table_note(t, "container %s", l.source.torch.legacy ? "legacy" : "zip");
	take_step(&l);
	rc = add_all(&l);
	torch_source_close(&l.source);
	return rc;
}

const struct format format_torch = {
	.name = "torch",
	.looks = "one *.pt, *.pth, *.bin, *.ckpt",
	.knows = knows,
	.fill = fill,
};
