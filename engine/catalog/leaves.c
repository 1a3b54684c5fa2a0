/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/leaves.h"

#include "engine/base/one-line.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static char **names_of(const struct vec *v)
{
	return v->items;
}

static void free_names(struct vec *v)
{
	for (uint32_t i = 0; i < v->count; i++)
		free(names_of(v)[i]);
	free(v->items);
	*v = (struct vec){ .items = NULL };
}

static int add_name(struct vec *v, const char *name, size_t length)
{
	char **to = vec_add(v, sizeof(*to));

	if (to)
		*to = strndup(name, length);
	return to && *to ? 0 : -ENOMEM;
}

/* Sorts the names, and leaves one of those that are equal. */
static void sort(struct vec *v)
{
	char **names = names_of(v);
	uint32_t n = 0;

	if (v->count)
		qsort(names, v->count, sizeof(*names), compare);
	for (uint32_t i = 0; i < v->count; i++) {
		if (n && !strcmp(names[n - 1], names[i]))
			free(names[i]);
		else
			names[n++] = names[i];
	}
	v->count = n;
}

/* Returns the number of the name, or LEAVES_NONE. */
static uint32_t find_name(const struct vec *v, const char *name)
{
	char **found =
		v->count ? bsearch(&name, v->items, v->count, sizeof(name), compare) : NULL;

	return found ? (uint32_t)(found - names_of(v)) : LEAVES_NONE;
}

static bool is_named(const char *module, enum frag_leaf_match match, const char *modules)
{
	size_t length = strlen(module), end = strlen(modules);

	switch (match) {
	case FRAG_LEAF_NAME:
		return !strcmp(module, modules);
	case FRAG_LEAF_SUFFIX:
		return length >= end && !strcmp(module + length - end, modules);
	default:
		return !fnmatch(modules, module, 0);
	}
}

/* Adds the modules of a parameter that `modules` names; name is a copy of its name. */
static int find_in(struct vec *found, char *name, enum frag_leaf_match match,
		   const char *modules)
{
	int rc = 0;

	for (char *dot = strchr(name, '.'); dot && !rc; dot = strchr(dot + 1, '.')) {
		*dot = '\0';
		if (is_named(name, match, modules))
			rc = add_name(found, name, (size_t)(dot - name));
		*dot = '.';
	}
	return rc;
}

static int find_named(struct vec *found, const struct catalog *c, enum frag_leaf_match match,
		      const char *modules)
{
	int rc = 0;

	for (uint32_t i = 0; i < c->nparams && !rc; i++) {
		CLEANUP(free) char *name = strdup(catalog_name(c, i));

		rc = name ? find_in(found, name, match, modules) : -ENOMEM;
	}
	if (!rc)
		sort(found);
	return rc;
}

/* Fills `marks` with the marks of l and the modules found; with on false, with the marks of l
 * but the modules found.
 */
static int change_marks(struct vec *marks, const struct leaves *l, const struct vec *found,
			bool on)
{
	int rc = 0;

	for (uint32_t i = 0; i < l->marks.count && !rc; i++) {
		const char *name = names_of(&l->marks)[i];

		if (on || find_name(found, name) == LEAVES_NONE)
			rc = add_name(marks, name, strlen(name));
	}
	for (uint32_t i = 0; i < found->count && !rc && on; i++)
		rc = add_name(marks, names_of(found)[i], strlen(names_of(found)[i]));
	if (!rc)
		sort(marks);
	return rc;
}

/* Counts the parameter in each marked module that it is in; name is a copy of its name.
 * Returns the number of the outermost, or LEAVES_NONE.
 */
static uint32_t count_in(const struct leaves *l, char *name)
{
	uint32_t leaf = LEAVES_NONE;

	for (char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
		uint32_t mark;

		*dot = '\0';
		mark = find_name(&l->marks, name);
		*dot = '.';
		if (mark == LEAVES_NONE)
			continue;
		l->params[mark]++;
		leaf = leaf == LEAVES_NONE ? mark : leaf;
	}
	return leaf;
}

/* Fills in all but the marks.  -ENOMEM. */
static int make_rings(struct leaves *l, const struct catalog *c)
{
	/* of each mark: the first and the last parameter so far */
	CLEANUP(free) uint32_t *first = calloc(l->marks.count + 1, sizeof(*first));
	CLEANUP(free) uint32_t *last = calloc(l->marks.count + 1, sizeof(*last));

	l->n = c->nparams;
	l->params = calloc(l->marks.count + 1, sizeof(*l->params));
	l->ring = malloc((l->n + 1) * sizeof(*l->ring));
	if (!first || !last || !l->params || !l->ring)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->marks.count; i++)
		first[i] = LEAVES_NONE;
	for (uint32_t i = 0; i < l->n; i++) {
		CLEANUP(free) char *name = strdup(catalog_name(c, i));
		uint32_t leaf = name ? count_in(l, name) : LEAVES_NONE;

		l->ring[i] = LEAVES_NONE;
		if (!name)
			return -ENOMEM;
		if (leaf == LEAVES_NONE)
			continue;
		if (first[leaf] == LEAVES_NONE)
			first[leaf] = i;
		else
			l->ring[last[leaf]] = i;
		last[leaf] = i;
		l->ring[i] = first[leaf];
	}
	return 0;
}

int leaves_mark(struct leaves *l, const struct catalog *c, enum frag_leaf_match match,
		const char *modules, bool on)
{
	struct vec found = { .items = NULL };
	struct leaves next = { .n = 0 };
	int rc = find_named(&found, c, match, modules), n = (int)found.count;

	if (!rc && !n)
		rc = -ENOENT;
	if (!rc)
		rc = change_marks(&next.marks, l, &found, on);
	if (!rc)
		rc = make_rings(&next, c);
	free_names(&found);
	if (rc) {
		leaves_fini(&next);
		return rc;
	}
	leaves_fini(l);
	*l = next;
	return n;
}

void leaves_fini(struct leaves *l)
{
	free_names(&l->marks);
	free(l->params);
	free(l->ring);
	*l = (struct leaves){ .n = 0 };
}

void leaves_print(const struct leaves *l, FILE *out)
{
	for (uint32_t i = 0; i < l->marks.count; i++) {
		one_line_put(out, names_of(&l->marks)[i]);
		fprintf(out, "\t%" PRIu32 "\n", l->params[i]);
	}
}
