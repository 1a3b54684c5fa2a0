/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/vec.h"
#include "engine/checkpoint/formats/format.h"
#include "engine/checkpoint/formats/torch-source.h"
#include "engine/checkpoint/parse/torch-unsupported.h"
#include "engine/checkpoint/parse/torchfile.h"
#include "engine/checkpoint/table/table-files.h"
#include "engine/checkpoint/table/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- names ----
 *
 * Names the tensors of a torch.save file: a name is the keys and indices that lead to the
 * tensor, joined by dots.  Attributes of an object, and parameters and submodules of a torch
 * module, are named right below it, so that a module has the names of its state_dict.
 */

struct torch_name {
	char *name; /* at most FRAG_NAME_MAX bytes */
	uint32_t node;
	bool buffer;             /* a module's buffer */
	bool twice;              /* an earlier tensor has the same name */
	struct torch_name *same; /* the first tensor with these bytes, dtype, shape, strides */
	uint64_t key[2];
	uint32_t tensor; /* its number in the table, if `added`; the caller's */
	bool added;
};

struct torch_names {
	struct torch_name *items; /* in the file's order */
	uint32_t count;
};

/* A pickle is a graph: many ways may lead to a tensor, and a way may return to a node on it.
 * The walk follows one way at a time, each at most DEPTH_MAX long and never through itself. The
 * file's size limits the cost of all ways together.
 */

enum { DEPTH_MAX = 2000, COST_LEAST = 1 << 20, COST_PER_BYTE = 16, KEYS_MAX = 200 };

struct step {
	uint32_t node;
	uint32_t next;  /* the number of the child that is next */
	uint16_t named; /* bytes of the name that leads here */
	bool top;       /* the name has no keys yet */
	/* below a module's _buffers */
	bool buffers;
	bool of_object; /* the node is an object's attributes */
};

struct names_walk {
	const struct pickle *p;
	struct table *table;
	struct vec found; /* of struct torch_name */
	uint64_t cost, cost_max;
	uint8_t *above; /* a bit for each node: it is on the way */
	uint32_t depth;
	char name[FRAG_NAME_MAX + 1];
	struct step way[DEPTH_MAX];
};

enum { PARTS = 4 }; /* of an object: state, items, sequence, arguments */

static uint32_t part(const struct pickle *p, uint32_t object, uint32_t i)
{
	switch (i) {
	case 0:
		return pickle_state(p, object);
	case 1:
		return pickle_items(p, object);
	case 2:
		return pickle_sequence(p, object);
	default:
		return pickle_arguments(p, object);
	}
}

static uint32_t children(const struct pickle *p, uint32_t node)
{
	return pickle_kind(p, node) == PICKLE_OBJECT ? PARTS : pickle_count(p, node);
}

static uint32_t child(const struct pickle *p, uint32_t node, uint32_t i)
{
	switch (pickle_kind(p, node)) {
	case PICKLE_OBJECT:
		return part(p, node, i);
	case PICKLE_DICT:
		return pickle_value(p, node, i);
	default:
		return pickle_item(p, node, i);
	}
}

static bool is_container(const struct pickle *p, uint32_t node)
{
	enum pickle_kind kind = pickle_kind(p, node);

	return kind == PICKLE_LIST || kind == PICKLE_TUPLE || kind == PICKLE_DICT ||
	       kind == PICKLE_OBJECT;
}

/* ---- names ---- */

/* Prints a text; a NUL becomes C0 80, as in torch_source_text(). */
static void put_text(const char *text, size_t size, FILE *out)
{
	for (size_t i = 0; i < size && i <= FRAG_NAME_MAX; i++)
		fputs(text[i] ? (char[]){ text[i], '\0' } : "\xc0\x80", out);
}

static void put_key(const struct pickle *p, uint32_t key, FILE *out)
{
	size_t size = 0;
	const char *text = pickle_text(p, key, &size);
	int64_t integer;
	double real;
	bool truth = false;

	if (text && pickle_kind(p, key) != PICKLE_BIG)
		put_text(text, size, out);
	else if (pickle_bool(p, key, &truth))
		fputs(truth ? "True" : "False", out);
	else if (pickle_int(p, key, &integer))
		fprintf(out, "%" PRId64, integer);
	else if (pickle_number(p, key, &real))
		fprintf(out, "%.17g", real);
	else if ((text = pickle_text(p, pickle_name(p, key), &size)))
		put_text(text, size, out);
	else
		fputs(pickle_kind(p, key) == PICKLE_NONE ? "None" : "?", out);
}

/* Prints a key; the items of a tuple are joined as nested keys are. */
static void put_keys(const struct pickle *p, uint32_t key, FILE *out)
{
	uint32_t n = pickle_kind(p, key) == PICKLE_TUPLE ? pickle_count(p, key) : 0;

	if (!n)
		put_key(p, key, out);
	for (uint32_t i = 0; i < n && i < KEYS_MAX; i++) {
		if (i)
			fputc('.', out);
		put_key(p, pickle_item(p, key, i), out);
	}
}

/* Appends `text` to w->name, so that it is the child's name.  Returns false if the name is too
 * long; the table has a note.
 */
static bool append(struct names_walk *w, struct step *to, const char *text)
{
	size_t dot = !to->top, size = strlen(text);

	if (to->named + dot + size > FRAG_NAME_MAX) {
		w->name[to->named] = '\0';
		table_skip(w->table, w->name, "the name of what is in it is too long");
		return false;
	}
	if (dot)
		w->name[to->named] = '.';
	memcpy(w->name + to->named + dot, text, size + 1);
	to->named = (uint16_t)(to->named + dot + size);
	to->top = false;
	return true;
}

static bool append_key(struct names_walk *w, struct step *to, uint32_t key)
{
	CLEANUP(free) char *made = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&made, &size);

	if (!out)
		return false;
	put_keys(w->p, key, out);
	fclose(out);
	w->cost += size;
	return made && append(w, to, made);
}

/* Returns true if the key is an attribute of a module that the names of its state_dict leave
 * out.
 */
static bool is_layer(struct names_walk *w, struct step *to, uint32_t key)
{
	if (pickle_is_text(w->p, key, "_buffers")) {
		to->buffers = true;
		return true;
	}
	return pickle_is_text(w->p, key, "_parameters") ||
	       pickle_is_text(w->p, key, "_modules");
}

static bool name_child(struct names_walk *w, const struct step *from, uint32_t i,
		       struct step *to)
{
	char digits[16];
	uint32_t key;

	switch (pickle_kind(w->p, from->node)) {
	case PICKLE_OBJECT:
		to->of_object = i == 0;
		return true;
	case PICKLE_DICT:
		key = pickle_key(w->p, from->node, i);
		return (from->of_object && is_layer(w, to, key)) || append_key(w, to, key);
	default:
		snprintf(digits, sizeof(digits), "%" PRIu32, i);
		return append(w, to, digits);
	}
}

/* ---- the walk ---- */

static bool is_above(const struct names_walk *w, uint32_t node)
{
	return w->above[node / 8] >> node % 8 & 1;
}

static void enter(struct names_walk *w, const struct step *s)
{
	if (is_above(w, s->node) || w->depth == DEPTH_MAX) {
		w->name[s->named] = '\0';
		table_skip(w->table, w->name,
			   is_above(w, s->node) ? "it is in itself" : "it is too deep");
		return;
	}
	w->above[s->node / 8] |= (uint8_t)(1 << s->node % 8);
	w->way[w->depth++] = *s;
}

static int add_found(struct names_walk *w, const struct step *s)
{
	struct torch_name *n = vec_add(&w->found, sizeof(*n));

	if (!n)
		return -ENOMEM;
	*n = (struct torch_name){ .name = strndup(w->name, s->named),
				  .node = s->node,
				  .buffer = s->buffers };
	w->cost += s->named;
	return n->name ? 0 : -ENOMEM;
}

/* Returns true if the object is a tensor that is not shown: then its attributes follow, if it
 * has any.
 */
static bool pass_unsupported(struct names_walk *w, struct step *s)
{
	char why[TORCH_UNSUPPORTED_MAX];

	if (!torch_unsupported(w->p, s->node, why))
		return false;
	w->name[s->named] = '\0';
	table_skip(w->table, w->name, "%s", why);
	s->node = torch_unsupported_attributes(w->p, s->node);
	if (is_container(w->p, s->node))
		enter(w, s);
	return true;
}

static int visit(struct names_walk *w, struct step *from)
{
	uint32_t i = from->next++;
	struct step to = { .node = child(w->p, from->node, i),
			   .named = from->named,
			   .top = from->top,
			   .buffers = from->buffers };
	bool tensor = pickle_kind(w->p, to.node) == PICKLE_TENSOR;

	w->cost++;
	if ((!tensor && !is_container(w->p, to.node)) || !name_child(w, from, i, &to))
		return 0;
	if (tensor)
		return add_found(w, &to);
	if (!pass_unsupported(w, &to))
		enter(w, &to);
	return 0;
}

static int walk(struct names_walk *w)
{
	int rc = 0;

	while (w->depth && !rc) {
		struct step *s = &w->way[w->depth - 1];

		if (w->cost > w->cost_max) {
			table_skip(w->table, "the rest", "there are too many ways to it");
			return 0;
		}
		if (s->next < children(w->p, s->node)) {
			rc = visit(w, s);
			continue;
		}
		w->above[s->node / 8] &= (uint8_t) ~(1 << s->node % 8);
		w->depth--;
	}
	return rc;
}

static int find(struct names_walk *w, const char *alone)
{
	struct step root = { .node = pickle_root(w->p), .top = true }, named = root;
	char why[TORCH_UNSUPPORTED_MAX];

	if (pickle_kind(w->p, root.node) == PICKLE_TENSOR)
		return append(w, &root, alone) ? add_found(w, &root) : 0;
	if (!torch_unsupported(w->p, root.node, why))
		enter(w, &root);
	else if (append(w, &named, alone))
		pass_unsupported(w, &named);
	return walk(w);
}

/* ---- names and bytes that occur twice ---- */

static int compare_names(const void *a, const void *b)
{
	const struct torch_name *x = *(struct torch_name *const *)a;
	const struct torch_name *y = *(struct torch_name *const *)b;
	int order = strcmp(x->name, y->name);

	return order ? order : (x > y) - (x < y);
}

/* Equal tensors only have to come together in a sort: is_same() compares them in full. */
static void hash(uint64_t *h, uint64_t value)
{
	*h = (*h ^ value) * 0x9e3779b97f4a7c15u;
	*h ^= *h >> 29;
}

static void measure(const struct torchfile *f, struct torch_name *n)
{
	struct torchfile_tensor x;
	struct parse_error error;

	if (torchfile_tensor(f, n->node, &x, &error) || !x.tensor.numel)
		return;
	n->key[0] = x.at;
	hash(&n->key[1], x.tensor.dtype);
	for (uint32_t d = 0; d < x.tensor.ndim; d++) {
		hash(&n->key[1], x.tensor.shape[d]);
		hash(&n->key[1], x.tensor.stride[d]);
	}
}

static int compare_places(const void *a, const void *b)
{
	const struct torch_name *x = *(struct torch_name *const *)a;
	const struct torch_name *y = *(struct torch_name *const *)b;
	int order = memcmp(x->key, y->key, sizeof(x->key));

	return order ? order : (x > y) - (x < y);
}

static bool is_same(const struct torchfile *f, const struct torch_name *a,
		    const struct torch_name *b)
{
	struct torchfile_tensor x, y;
	struct parse_error error;
	size_t sizes = sizeof(x.tensor.shape[0]);

	if (!a->key[0] || memcmp(a->key, b->key, sizeof(a->key)) || a->buffer != b->buffer ||
	    torchfile_tensor(f, a->node, &x, &error) ||
	    torchfile_tensor(f, b->node, &y, &error))
		return false;
	return x.tensor.dtype == y.tensor.dtype && x.tensor.ndim == y.tensor.ndim &&
	       !memcmp(x.tensor.shape, y.tensor.shape, x.tensor.ndim * sizes) &&
	       !memcmp(x.tensor.stride, y.tensor.stride, x.tensor.ndim * sizes);
}

static void link_same(const struct torchfile *f, struct torch_names *n, struct torch_name **by)
{
	struct torch_name *first = NULL;

	for (uint32_t i = 0; i < n->count; i++)
		measure(f, &n->items[i]);
	qsort(by, n->count, sizeof(struct torch_name *), compare_places);
	for (uint32_t i = 0; i < n->count; i++) {
		if (!first || !is_same(f, first, by[i]))
			first = by[i];
		by[i]->same = first;
	}
}

static int compare_all(const struct torchfile *f, struct torch_names *n)
{
	CLEANUP(free) struct torch_name **by = calloc((size_t)n->count + 1, sizeof(*by));

	if (!by)
		return -ENOMEM;
	for (uint32_t i = 0; i < n->count; i++)
		by[i] = &n->items[i];
	qsort(by, n->count, sizeof(struct torch_name *), compare_names);
	for (uint32_t i = 1; i < n->count; i++)
		by[i]->twice = !strcmp(by[i]->name, by[i - 1]->name);
	link_same(f, n, by);
	return 0;
}

/* ---- doors ---- */

/* Finds all tensors of f.  A tensor that is all of the file is named `alone`.  The table notes
 * nodes that are left out.
 * -ENOMEM.
 */
static int torch_names_find(struct torch_names *n, const struct torchfile *f, const char *alone,
			    struct table *t)
{
	CLEANUP(free) struct names_walk *w = calloc(1, sizeof(*w));
	CLEANUP(free) uint8_t *above = calloc(pickle_nodes(f->pickle) / 8 + 1, 1);
	int rc;

	*n = (struct torch_names){ 0 };
	if (!w || !above)
		return -ENOMEM;
	w->p = f->pickle;
	w->table = t;
	w->above = above;
	w->cost_max = COST_LEAST + COST_PER_BYTE * pickle_size(f->pickle);
	rc = find(w, alone);
	n->items = w->found.items;
	n->count = w->found.count;
	return rc ? rc : compare_all(f, n);
}

static void torch_names_free(struct torch_names *n)
{
	for (uint32_t i = 0; i < n->count; i++)
		free(n->items[i].name);
	free(n->items);
	*n = (struct torch_names){ 0 };
}

/* Reads a file of torch.save: every tensor in it, named by the keys that lead to it. */

static const char *const suffixes[] = { ".pt", ".pth", ".bin", ".ckpt" };

static bool is_torch_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++)
		if (folder_ends_in(name, suffixes[i]))
			return true;
	return false;
}

/* Returns true if the file begins as a zip archive, or as a pickle of protocol 2 or later. */
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

struct torch_loader {
	struct table *table;
	struct torch_source source;
	uint64_t runs; /* pieces so far of tensors that are not contiguous */
	struct torch_names names;
};

enum { ALL_RUNS_MAX = 1 << 20 }; /* pieces of all tensors that are not contiguous */

/* Returns the reason why a tensor is not shown; NULL: it is. */
static const char *unsupported(struct torch_loader *l, const struct torch_name *n,
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

static int add_tensor(struct torch_loader *l, const struct torch_name *n,
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

static int add(struct torch_loader *l, struct torch_name *n)
{
	struct torchfile_tensor x;
	struct parse_error error = { "" };
	const char *why;
	int rc = torchfile_tensor(&l->source.torch, n->node, &x, &error);

	if (rc && rc != -EOPNOTSUPP)
		return table_files_refuse(l->table, l->source.name, rc, &error);
	if (!rc && !n->twice && n->same != n && n->same->added) {
		rc = table_add_alias(l->table, n->name, n->same->tensor);
		return rc < 0 ? rc : 0;
	}
	why = rc ? error.why : unsupported(l, n, &x);
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

static void take_step(struct torch_loader *l)
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

static int add_all(struct torch_loader *l)
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
	struct torch_loader l = { .table = t };
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
