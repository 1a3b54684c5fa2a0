/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/xattr.h"

#include "engine/base/one-line.h"
#include "fs/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "user.frag."

enum { WORD_MAX = 32 };

static bool of_param(const struct tree *t, struct node n)
{
	return n.kind == NODE_PARAM || n.kind == NODE_RANK_PARAM || n.kind == NODE_STATE ||
	       n.kind == NODE_NPY || n.kind == NODE_RANK_STATE || n.kind == NODE_CELLS;
}

/* Returns true if the node has the parameter's shape; a NODE_CELLS has a shape and dtype of its
 * own.
 */
static bool of_whole_param(const struct tree *t, struct node n)
{
	return of_param(t, n) && n.kind != NODE_CELLS;
}

static bool of_live_param(const struct tree *t, struct node n)
{
	return of_param(t, n) && (t->has & TREE_LIVE);
}

static bool of_live_folder(const struct tree *t, struct node n)
{
	return n.kind == NODE_PARAM && (t->has & TREE_LIVE);
}

static bool of_state(const struct tree *t, struct node n)
{
	return n.kind == NODE_STATE || n.kind == NODE_NPY || n.kind == NODE_CELLS;
}

static bool of_state_now(const struct tree *t, struct node n)
{
	return of_state(t, n) && tree_node_is_now(n);
}

static bool of_live_grad(const struct tree *t, struct node n)
{
	return of_state(t, n) && (t->has & TREE_LIVE) && !strcmp(tree_key(t, n), "grad");
}

static int get_name(struct tree *t, struct node n, char **value)
{
	struct engine_param p;

	if (!engine_param(t->engine, n.item, &p))
		return -ENODATA;
	return asprintf(value, *p.coordinate ? "%s@%s" : "%s", p.name, p.coordinate) < 0
		       ? -ENOMEM
		       : 0;
}

static int get_text(struct tree *t, struct node n, enum text_id id, char **value)
{
	struct node text = { .kind = NODE_TEXT, .item = n.item, .slot = id };
	int64_t length = text_build(t, text, value);

	if (length > 0)
		(*value)[length - 1] = '\0';
	return length < 0 ? (int)length : 0;
}

static int get_shape(struct tree *t, struct node n, char **value)
{
	return get_text(t, n, TEXT_SHAPE, value);
}

static int get_dtype(struct tree *t, struct node n, char **value)
{
	struct engine_state state;
	int rc;

	if (!tree_node_is_state(n))
		return get_text(t, n, TEXT_DTYPE, value);
	rc = tree_state(t, n, &state);
	*value = rc ? NULL : strdup(frag_dtype_name(state.dtype));
	return rc || *value ? rc : -ENOMEM;
}

/* Gives dtype and shape at once, because a reader of small states spends most of its time on
 * requests.
 */
static int get_tensor(struct tree *t, struct node n, char **value)
{
	CLEANUP(free) char *dtype = NULL;
	CLEANUP(free) char *shape = NULL;
	int rc = get_dtype(t, n, &dtype);

	if (!rc)
		rc = get_shape(t, n, &shape);
	if (rc)
		return rc;
	return asprintf(value, *shape ? "%s %s" : "%s", dtype, shape) < 0 ? -ENOMEM : 0;
}

static int get_generation(struct tree *t, struct node n, char **value)
{
	return get_text(t, n, TEXT_GENERATION, value);
}

/* Returns true if the word is in a list of words with commas between them. */
static bool listed(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += length) {
		if ((at == list || at[-1] == ',') && (!at[length] || at[length] == ','))
			return true;
	}
	return false;
}

/* Writes the word of a fragment for a list; "": none. */
typedef void (*words_of)(struct tree *t, const struct engine_fragment *f, char word[WORD_MAX]);

struct attributes_listing {
	FILE *out;
	char *list;
	size_t size;
	struct tree *tree;
	words_of word_of;
};

static void list_word(void *arg, const struct engine_fragment *f)
{
	struct attributes_listing *l = arg;
	char word[WORD_MAX];

	l->word_of(l->tree, f, word);
	fflush(l->out); /* so that l->list has all words so far, for listed() */
	if (*word && !listed(l->list, word))
		fprintf(l->out, l->size ? ",%s" : "%s", word);
}

/* Lists all ranks of the parameter's group: each has the low-precision copy, or a part of it.
 */
static void list_ranks(struct attributes_listing *l, uint32_t param)
{
	struct engine_param p;
	struct engine_group g;

	if (!engine_param(l->tree->engine, param, &p) || p.group < 0 ||
	    !engine_group(l->tree->engine, (uint32_t)p.group, &g))
		return;
	for (uint32_t i = 0; i < g.nranks; i++)
		list_word(l, &(struct engine_fragment){ .rank = g.ranks[i] });
}

/* Lists the different words that word_of() writes of the state's fragments. */
static int list_words(struct tree *t, struct node n, char **list, words_of word_of)
{
	struct attributes_listing l = { .tree = t, .word_of = word_of };
	struct engine_state state;
	int rc = tree_state(t, n, &state);

	if (rc)
		return rc;
	l.out = open_memstream(&l.list, &l.size);
	if (!l.out)
		return -ENOMEM;
	/* sets l.list, in which list_word() looks */
	fflush(l.out);
	if (state.flags & ENGINE_STATE_LP)
		list_ranks(&l, n.item);
	else
		engine_fragments(t->engine, n.item, state.key, list_word, &l);
	rc = fclose(l.out) ? -ENOMEM : 0;
	*list = l.list;
	return rc;
}

static void tier_of(struct tree *t, const struct engine_fragment *f, char word[WORD_MAX])
{
	snprintf(word, WORD_MAX, "%s", f->tier ? f->tier : "");
}

static int get_tier(struct tree *t, struct node n, char **value)
{
	return list_words(t, n, value, tier_of);
}

static void rank_of(struct tree *t, const struct engine_fragment *f, char word[WORD_MAX])
{
	snprintf(word, WORD_MAX, "%u", f->rank);
}

static int get_owners(struct tree *t, struct node n, char **value)
{
	return list_words(t, n, value, rank_of);
}

static void generation_of(struct tree *t, const struct engine_fragment *f, char word[WORD_MAX])
{
	struct engine_rank r = { .generation = 0 };

	engine_rank(t->engine, f->rank, &r);
	snprintf(word, WORD_MAX, "%u:%" PRIu64, f->rank, r.generation);
}

static int get_generations(struct tree *t, struct node n, char **value)
{
	return list_words(t, n, value, generation_of);
}

static int get_loss_scale(struct tree *t, struct node n, char **value)
{
	struct engine_param p;
	int rc;

	if (!engine_param(t->engine, n.item, &p) || p.group < 0)
		return -ENODATA;
	n.item = (uint32_t)p.group << 16;
	rc = get_text(t, n, TEXT_GROUP_LOSS_SCALE, value);
	if (rc || **value)
		return rc;
	return -ENODATA;
}

/* Returns true if the text .frag/leaves has a line of the module. */
static bool is_leaf(const char *marks, const char *module)
{
	char name[3 * FRAG_NAME_MAX + 1];
	size_t length = one_line(module, name, sizeof(name));

	for (const char *line = strchr(marks, '\n'); line; line = strchr(line, '\n'))
		if (!strncmp(++line, name, length) && line[length] == '\t')
			return true;
	return false;
}

/* Gives the leaf of a parameter: the outermost marked module whose name begins the parameter's,
 * which is the one with the shortest name.
 * -ENODATA: the parameter is in no marked module.
 */
static int get_leaf(struct tree *t, struct node n, char **value)
{
	CLEANUP(free) char *marks = engine_text(t->engine, "leaves");
	CLEANUP(free) char *module = NULL;
	struct engine_param p;

	if (!marks)
		return errno ? -errno : -ENOMEM;
	if (!engine_param(t->engine, n.item, &p))
		return -ENODATA;
	module = strdup(p.name);
	if (!module)
		return -ENOMEM;
	for (char *dot = strchr(module, '.'); dot; dot = strchr(dot + 1, '.')) {
		*dot = '\0';
		if (is_leaf(marks, module)) {
			*value = module;
			module = NULL;
			return 0;
		}
		*dot = '.';
	}
	return -ENODATA;
}

static const struct {
	const char *name;
	bool (*has)(const struct tree *t, struct node n);
	int (*get)(struct tree *t, struct node n, char **value);
	/* false: get asks a rank, for which a listing of all attributes must not wait */
	bool listed;
} table[] = {
	{ PREFIX "name", of_param, get_name, true },
	{ PREFIX "shape", of_whole_param, get_shape, true },
	{ PREFIX "dtype", of_whole_param, get_dtype, true },
	{ PREFIX "tensor", of_whole_param, get_tensor, true },
	{ PREFIX "generation", of_live_param, get_generation, true },
	{ PREFIX "tier", of_state, get_tier, true },
	{ PREFIX "owners", of_state, get_owners, true },
	{ PREFIX "loss_scale", of_live_grad, get_loss_scale, true },
	{ PREFIX "generations", of_state_now, get_generations, true },
	{ PREFIX "leaf", of_live_folder, get_leaf, false },
};

int64_t xattr_list(struct tree *t, struct node n, char **list)
{
	size_t size = 0;

	*list = malloc(512);
	if (!*list)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (table[i].has(t, n) && table[i].listed) {
			strcpy(*list + size, table[i].name);
			size += strlen(table[i].name) + 1;
		}
	}
	return (int64_t)size;
}

int64_t xattr_get(struct tree *t, struct node n, const char *name, char **value)
{
	int rc;

	if (strncmp(name, "user.", 5) != 0)
		return -EOPNOTSUPP;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].name, name) != 0 || !table[i].has(t, n))
			continue;
		rc = table[i].get(t, n, value);
		if (rc)
			return rc == -ENOENT ? -ENODATA : rc;
		return (int64_t)strlen(*value);
	}
	return -ENODATA;
}
