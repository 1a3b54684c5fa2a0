/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* The nodes of a pickle: questions about them, and the order in which keys of dicts are found.
 */

#include "engine/checkpoint/parse/pickle-internal.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <string.h>

void pickle_free(struct pickle *p)
{
	if (!p)
		return;
	free(p->data);
	free(p->nodes);
	free(p->words);
	free(p->decoded);
	free(p);
}

const uint8_t *pickle_bytes_of(const struct pickle *p, const struct pickle_node *n)
{
	return (n->decoded ? p->decoded : p->data) + n->at;
}

uint32_t pickle_root(const struct pickle *p)
{
	return p->root;
}

uint64_t pickle_size(const struct pickle *p)
{
	return p->size;
}

uint32_t pickle_nodes(const struct pickle *p)
{
	return p->nnodes;
}

enum pickle_kind pickle_kind(const struct pickle *p, uint32_t node)
{
	return node < p->nnodes ? p->nodes[node].kind : PICKLE_NOTHING;
}

static bool is(const struct pickle *p, uint32_t node, enum pickle_kind kind)
{
	return pickle_kind(p, node) == kind;
}

uint32_t pickle_count(const struct pickle *p, uint32_t node)
{
	if (is(p, node, PICKLE_DICT))
		return p->nodes[node].count / 2;
	return is(p, node, PICKLE_LIST) || is(p, node, PICKLE_TUPLE) ? p->nodes[node].count : 0;
}

uint32_t pickle_item(const struct pickle *p, uint32_t node, uint32_t i)
{
	if (is(p, node, PICKLE_DICT) || i >= pickle_count(p, node))
		return PICKLE_NOTHING;
	return pickle_words(p, node)[i];
}

static uint32_t pair(const struct pickle *p, uint32_t dict, uint32_t i, uint32_t which)
{
	if (!is(p, dict, PICKLE_DICT) || i >= pickle_count(p, dict))
		return PICKLE_NOTHING;
	return pickle_words(p, dict)[2 * i + which];
}

uint32_t pickle_key(const struct pickle *p, uint32_t dict, uint32_t i)
{
	return pair(p, dict, i, 0);
}

uint32_t pickle_value(const struct pickle *p, uint32_t dict, uint32_t i)
{
	return pair(p, dict, i, 1);
}

bool pickle_bool(const struct pickle *p, uint32_t node, bool *out)
{
	if (!is(p, node, PICKLE_BOOL))
		return false;
	*out = p->nodes[node].integer;
	return true;
}

bool pickle_int(const struct pickle *p, uint32_t node, int64_t *out)
{
	if (!is(p, node, PICKLE_INT))
		return false;
	*out = p->nodes[node].integer;
	return true;
}

bool pickle_number(const struct pickle *p, uint32_t node, double *out)
{
	if (is(p, node, PICKLE_REAL))
		*out = p->nodes[node].real;
	else if (is(p, node, PICKLE_INT))
		*out = (double)p->nodes[node].integer;
	else
		return false;
	return true;
}

const char *pickle_text(const struct pickle *p, uint32_t node, size_t *size)
{
	if (!is(p, node, PICKLE_TEXT) && !is(p, node, PICKLE_BYTES) && !is(p, node, PICKLE_BIG))
		return NULL;
	*size = p->nodes[node].count;
	return (const char *)pickle_bytes_of(p, &p->nodes[node]);
}

bool pickle_is_text(const struct pickle *p, uint32_t node, const char *text)
{
	size_t size;
	const char *is_text = is(p, node, PICKLE_TEXT) ? pickle_text(p, node, &size) : NULL;

	return is_text && size == strlen(text) && !memcmp(is_text, text, size);
}

static uint32_t word(const struct pickle *p, uint32_t node, enum pickle_kind kind, uint32_t i)
{
	return is(p, node, kind) ? pickle_words(p, node)[i] : PICKLE_NOTHING;
}

uint32_t pickle_module(const struct pickle *p, uint32_t node)
{
	return word(p, node, PICKLE_GLOBAL, 0);
}

uint32_t pickle_name(const struct pickle *p, uint32_t node)
{
	return word(p, node, PICKLE_GLOBAL, 1);
}

bool pickle_is_global(const struct pickle *p, uint32_t node, const char *module,
		      const char *name)
{
	return pickle_is_text(p, pickle_name(p, node), name) &&
	       (!module || pickle_is_text(p, pickle_module(p, node), module));
}

bool pickle_is_plain_class(const struct pickle *p, uint32_t node)
{
	return pickle_is_global(p, node, "torch", "Tensor") ||
	       pickle_is_global(p, node, "torch.nn.parameter", "Parameter") ||
	       pickle_is_global(p, node, "torch.nn.parameter", "Buffer");
}

uint32_t pickle_callee(const struct pickle *p, uint32_t node)
{
	return word(p, node, PICKLE_OBJECT, OBJECT_CALLEE);
}

uint32_t pickle_arguments(const struct pickle *p, uint32_t node)
{
	return word(p, node, PICKLE_OBJECT, OBJECT_ARGUMENTS);
}

uint32_t pickle_state(const struct pickle *p, uint32_t node)
{
	return word(p, node, PICKLE_OBJECT, OBJECT_STATE);
}

uint32_t pickle_items(const struct pickle *p, uint32_t node)
{
	return word(p, node, PICKLE_OBJECT, OBJECT_ITEMS);
}

uint32_t pickle_sequence(const struct pickle *p, uint32_t node)
{
	return word(p, node, PICKLE_OBJECT, OBJECT_SEQUENCE);
}

uint32_t pickle_field(const struct pickle *p, uint32_t node, const char *name)
{
	uint32_t state = pickle_state(p, node), field = pickle_get(p, state, name);

	for (uint32_t i = 0; i < 2 && !field; i++)
		field = pickle_get(p, pickle_item(p, state, i), name);
	return field;
}

bool pickle_is_object(const struct pickle *p, uint32_t node, const char *module,
		      const char *callee)
{
	return pickle_is_global(p, pickle_callee(p, node), module, callee);
}

bool pickle_storage(const struct pickle *p, uint32_t node, struct pickle_storage *out)
{
	int64_t numel = 0;

	if (!is(p, node, PICKLE_STORAGE))
		return false;
	pickle_int(p, pickle_words(p, node)[STORAGE_NUMEL], &numel);
	*out = (struct pickle_storage){ .dtype = pickle_words(p, node)[STORAGE_DTYPE],
					.key = pickle_words(p, node)[STORAGE_KEY],
					.numel = (uint64_t)numel };
	return true;
}

bool pickle_tensor(const struct pickle *p, uint32_t node, struct pickle_tensor *out)
{
	const uint32_t *words = pickle_words(p, is(p, node, PICKLE_TENSOR) ? node : 0);

	if (!is(p, node, PICKLE_TENSOR))
		return false;
	*out = (struct pickle_tensor){ .dtype = words[TENSOR_DTYPE],
				       .storage = words[TENSOR_STORAGE],
				       .shape = words[TENSOR_SHAPE],
				       .stride = words[TENSOR_STRIDE] };
	return pickle_int(p, words[TENSOR_OFFSET], &out->offset);
}

/* ---- sealing ----
 *
 * Pairs with equal keys become one pair, which stands, as in Python, where the first stood and
 * has the last one's value.  A large dict gets an order, in which a key is found by bisection.
 * Texts that are keys are ranked first, each once: one long text that is a key of a thousand
 * dicts is then not compared a thousand times.  Sealing is O(n log n).
 */

static int compare_texts(const void *a, const void *b, void *pickle)
{
	const struct pickle *p = pickle;
	const struct pickle_node *x = &p->nodes[*(const uint32_t *)a];
	const struct pickle_node *y = &p->nodes[*(const uint32_t *)b];

	return utf8_compare(pickle_bytes_of(p, x), x->count, pickle_bytes_of(p, y), y->count);
}

/* Counts the texts that are keys, each once; out, where not NULL, receives them.  The first
 * call (out NULL) marks each text by rank 1, the second one by rank 2.
 */
static uint32_t collect(struct pickle *p, uint32_t *out)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < p->nnodes; i++) {
		if (p->nodes[i].kind != PICKLE_DICT)
			continue;
		for (uint32_t k = 0; k < p->nodes[i].count; k += 2) {
			uint32_t key = p->words[p->nodes[i].at + k];
			uint32_t wanted = out ? 1 : 0;

			if (p->nodes[key].kind != PICKLE_TEXT || p->nodes[key].rank != wanted)
				continue;
			p->nodes[key].rank = wanted + 1;
			if (out)
				out[found] = key;
			found++;
		}
	}
	return found;
}

static int rank_texts(struct pickle *p)
{
	uint32_t n = collect(p, NULL), rank = 0;
	CLEANUP(free) uint32_t *keys = malloc((n + 1) * sizeof(*keys));

	if (!keys)
		return -ENOMEM;
	collect(p, keys);
	qsort_r(keys, n, sizeof(*keys), compare_texts, p);
	for (uint32_t i = 0; i < n; i++) {
		rank += i && compare_texts(&keys[i - 1], &keys[i], p);
		p->nodes[keys[i]].rank = rank;
	}
	return 0;
}

/* Orders keys: texts, then integers, then nodes that equal no other. */
static int compare_nodes(const struct pickle_node *a, const struct pickle_node *b)
{
	static const uint8_t class[] = {
		[PICKLE_TEXT] = 2, [PICKLE_INT] = 1, [PICKLE_OBJECT] = 0
	};

	if (class[a->kind] != class[b->kind])
		return class[b->kind] - class[a->kind];
	if (a->kind == PICKLE_TEXT)
		return (a->rank > b->rank) - (a->rank < b->rank);
	if (a->kind == PICKLE_INT)
		return (a->integer > b->integer) - (a->integer < b->integer);
	return 0;
}

static bool same_key(const struct pickle *p, uint32_t a, uint32_t b)
{
	const struct pickle_node *x = &p->nodes[a], *y = &p->nodes[b];

	return x->kind == y->kind && (x->kind == PICKLE_TEXT || x->kind == PICKLE_INT) &&
	       !compare_nodes(x, y);
}

/* Removes the pairs whose key was overwritten with PICKLE_NOTHING. */
static void drop_pairs(struct pickle *p, struct pickle_node *dict)
{
	uint32_t *pairs = p->words + dict->at, kept = 0;

	for (uint32_t i = 0; i < dict->count; i += 2) {
		if (!pairs[i])
			continue;
		pairs[kept] = pairs[i];
		pairs[kept + 1] = pairs[i + 1];
		kept += 2;
	}
	dict->count = kept;
}

static void seal_small(struct pickle *p, struct pickle_node *dict)
{
	uint32_t *pairs = p->words + dict->at;

	for (uint32_t i = 2; i < dict->count; i += 2)
		for (uint32_t k = 0; k < i && pairs[i]; k += 2)
			if (same_key(p, pairs[k], pairs[i])) {
				pairs[k + 1] = pairs[i + 1];
				pairs[i] = PICKLE_NOTHING;
			}
	drop_pairs(p, dict);
}

struct pairs_order {
	const struct pickle *p;
	const uint32_t *pairs;
};

/* Orders pairs by key; pairs with equal keys keep the dict's order. */
static int compare_pairs(const void *a, const void *b, void *sorting)
{
	const struct pairs_order *s = sorting;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	int order = compare_nodes(&s->p->nodes[s->pairs[2 * x]], &s->p->nodes[s->pairs[2 * y]]);

	return order ? order : (x > y) - (x < y);
}

static void sort_pairs(const struct pickle *p, const struct pickle_node *dict, uint32_t *order)
{
	struct pairs_order s = { p, p->words + dict->at };

	for (uint32_t i = 0; i < dict->count / 2; i++)
		order[i] = i;
	qsort_r(order, dict->count / 2, sizeof(*order), compare_pairs, &s);
}

static bool merge_equals(struct pickle *p, const struct pickle_node *dict,
			 const uint32_t *order)
{
	uint32_t *pairs = p->words + dict->at, first = 0;
	bool any = false;

	for (uint32_t i = 1; i < dict->count / 2; i++) {
		if (!same_key(p, pairs[2 * order[first]], pairs[2 * order[i]])) {
			first = i;
			continue;
		}
		pairs[2 * order[first] + 1] = pairs[2 * order[i] + 1];
		pairs[2 * order[i]] = PICKLE_NOTHING;
		any = true;
	}
	return any;
}

static void seal_large(struct pickle *p, struct pickle_node *dict)
{
	dict->order = p->nwords;
	p->nwords += dict->count / 2;
	sort_pairs(p, dict, p->words + dict->order);
	if (merge_equals(p, dict, p->words + dict->order)) {
		drop_pairs(p, dict);
		sort_pairs(p, dict, p->words + dict->order);
	}
}

/* Makes room for the orders of all large dicts, one word a pair. */
static int reserve_orders(struct pickle *p)
{
	uint64_t wanted = p->nwords;
	uint32_t *larger;

	for (uint32_t i = 0; i < p->nnodes; i++)
		if (is(p, i, PICKLE_DICT) && pickle_count(p, i) >= LOOKUP_MIN)
			wanted += pickle_count(p, i);
	if (wanted <= p->words_room)
		return 0;
	if (wanted > WORDS_MAX)
		return -EFBIG;
	larger = reallocarray(p->words, wanted, sizeof(*p->words));
	if (!larger)
		return -ENOMEM;
	p->words = larger;
	p->words_room = (uint32_t)wanted;
	return 0;
}

int pickle_seal(struct pickle *p)
{
	int rc = rank_texts(p);

	if (!rc)
		rc = reserve_orders(p);
	for (uint32_t i = 0; i < p->nnodes && !rc; i++) {
		if (!is(p, i, PICKLE_DICT))
			continue;
		if (pickle_count(p, i) >= LOOKUP_MIN)
			seal_large(p, &p->nodes[i]);
		else if (pickle_count(p, i))
			seal_small(p, &p->nodes[i]);
	}
	return rc;
}

/* ---- lookups ---- */

struct wanted {
	enum pickle_kind kind;
	const char *text;
	size_t size;
	int64_t integer;
};

/* Compares as compare_nodes(), but texts by their bytes: rank_texts() ranked them so. */
static int compare_wanted(const struct pickle *p, const struct wanted *w, uint32_t key)
{
	const struct pickle_node *n = &p->nodes[key];

	if (n->kind == w->kind && w->kind == PICKLE_TEXT)
		return utf8_compare(w->text, w->size, pickle_bytes_of(p, n), n->count);
	if (n->kind == w->kind)
		return (w->integer > n->integer) - (w->integer < n->integer);
	return w->kind == PICKLE_TEXT || n->kind != PICKLE_TEXT ? -1 : 1;
}

static uint32_t find_key(const struct pickle *p, uint32_t node, const struct wanted *w)
{
	const struct pickle_node *dict = &p->nodes[node];
	const uint32_t *pairs = p->words + dict->at, *order = p->words + dict->order;
	uint32_t n = dict->count / 2;

	if (pickle_kind(p, node) != PICKLE_DICT)
		return PICKLE_NOTHING;
	/* while the pickle is read no dict has an order yet */
	if (p->size && n >= LOOKUP_MIN) {
		uint64_t at = LOWER_BOUND(n, i, compare_wanted(p, w, pairs[2 * order[i]]) > 0);

		if (at == n || compare_wanted(p, w, pairs[2 * order[at]]))
			return PICKLE_NOTHING;
		return pairs[2 * order[at] + 1];
	}
	/* from the end: before sealing the last of equal keys counts */
	for (uint32_t i = dict->count; i; i -= 2)
		if (!compare_wanted(p, w, p->words[dict->at + i - 2]))
			return p->words[dict->at + i - 1];
	return PICKLE_NOTHING;
}

uint32_t pickle_get_text(const struct pickle *p, uint32_t dict, const char *key, size_t size)
{
	return find_key(p, dict,
			&(struct wanted){ .kind = PICKLE_TEXT, .text = key, .size = size });
}

uint32_t pickle_get(const struct pickle *p, uint32_t dict, const char *key)
{
	return pickle_get_text(p, dict, key, strlen(key));
}

uint32_t pickle_get_as(const struct pickle *p, uint32_t dict, const struct pickle *other,
		       uint32_t key)
{
	size_t size;
	const char *text = pickle_text(other, key, &size);

	return text ? pickle_get_text(p, dict, text, size) : PICKLE_NOTHING;
}

uint32_t pickle_get_int(const struct pickle *p, uint32_t dict, int64_t key)
{
	return find_key(p, dict, &(struct wanted){ .kind = PICKLE_INT, .integer = key });
}
