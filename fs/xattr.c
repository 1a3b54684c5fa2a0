/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/xattr.h"

#include "fs/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "user.frag."

enum column { COLUMN_RANK, COLUMN_STATE, COLUMN_TIER, COLUMNS };

static bool of_param(struct node n)
{
	return n.kind == NODE_PARAM || n.kind == NODE_RANK_PARAM || n.kind == NODE_STATE ||
	       n.kind == NODE_NPY || n.kind == NODE_RANK_STATE;
}

static bool of_state(struct node n)
{
	return n.kind == NODE_STATE || n.kind == NODE_NPY;
}

static char *get_name(struct tree *t, struct node n)
{
	struct engine_param p;
	char *text;

	if (!engine_param(t->engine, n.item, &p))
		return NULL;
	if (asprintf(&text, *p.coordinate ? "%s@%s" : "%s", p.name, p.coordinate) < 0)
		return NULL;
	return text;
}

static char *get_text(struct tree *t, struct node n, enum text_id id)
{
	struct node text = { NODE_TEXT, 0, n.item, id };
	char *value;
	int64_t length = text_build(t, text, &value);

	if (length < 0)
		return NULL;
	if (length)
		value[length - 1] = '\0';
	return value;
}

static char *get_shape(struct tree *t, struct node n)
{
	return get_text(t, n, TEXT_SHAPE);
}

static char *get_dtype(struct tree *t, struct node n)
{
	struct engine_state state;

	if (!node_is_state(n))
		return get_text(t, n, TEXT_DTYPE);
	return tree_state(t, n, &state) ? NULL : strdup(frag_dtype_name(state.dtype));
}

static char *get_generation(struct tree *t, struct node n)
{
	return get_text(t, n, TEXT_GENERATION);
}

/* Is word in list, whose words have commas between them? */
static bool listed(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += length) {
		if ((at == list || at[-1] == ',') && (!at[length] || at[length] == ','))
			return true;
	}
	return false;
}

static void join(FILE *out, char **list, size_t *size, const char *word)
{
	fflush(out);
	if (listed(*list, word))
		return;
	fprintf(out, *size ? ",%s" : "%s", word);
}

/* The different words that a column of the fragments' table has for n's state. */
static char *column(struct tree *t, struct node n, enum column which)
{
	char *table = engine_fragments(t->engine, n.item), *rest = table, *line, *list = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&list, &size);

	strsep(&rest, "\n"); /* what the columns are called */
	while (out && (line = strsep(&rest, "\n"))) {
		char *words[COLUMNS];

		for (int i = 0; i < COLUMNS; i++)
			words[i] = strsep(&line, "\t");
		if (words[COLUMNS - 1] && !strcmp(words[COLUMN_STATE], tree_key(t, n)))
			join(out, &list, &size, words[which]);
	}
	if (out)
		fclose(out);
	free(table);
	return list;
}

static char *get_tier(struct tree *t, struct node n)
{
	return column(t, n, COLUMN_TIER);
}

static char *get_owners(struct tree *t, struct node n)
{
	return column(t, n, COLUMN_RANK);
}

static const struct {
	const char *name;
	bool (*has)(struct node n);
	char *(*get)(struct tree *t, struct node n);
} table[] = {
	{ PREFIX "name", of_param, get_name },
	{ PREFIX "shape", of_param, get_shape },
	{ PREFIX "dtype", of_param, get_dtype },
	{ PREFIX "generation", of_param, get_generation },
	{ PREFIX "tier", of_state, get_tier },
	{ PREFIX "owners", of_state, get_owners },
};

int64_t xattr_list(struct tree *t, struct node n, char **list)
{
	size_t size = 0;

	*list = malloc(512);
	if (!*list)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (table[i].has(n)) {
			strcpy(*list + size, table[i].name);
			size += strlen(table[i].name) + 1;
		}
	}
	return (int64_t)size;
}

int64_t xattr_get(struct tree *t, struct node n, const char *name, char **value)
{
	if (strncmp(name, "user.", 5) != 0)
		return -EOPNOTSUPP;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].name, name) != 0 || !table[i].has(n))
			continue;
		*value = table[i].get(t, n);
		return *value ? (int64_t)strlen(*value) : -ENODATA;
	}
	return -ENODATA;
}
