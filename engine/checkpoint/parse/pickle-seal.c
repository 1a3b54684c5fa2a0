/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* After the last instruction: of pairs with equal keys one is left, as in Python in the place
 * of the first and with the value of the last, and large dicts get an order in which a key is
 * found by bisection.  Texts that are keys are ranked first, each once, so that one long text
 * which is a key in a thousand places is not compared a thousand times.  Everything is O(n log
 * n).
 */

#include "engine/checkpoint/parse/pickle-machine.h"

#include <errno.h>
#include <string.h>

static int compare_bytes(const void *a, size_t a_size, const void *b, size_t b_size)
{
	size_t n = a_size < b_size ? a_size : b_size;
	int order = n ? memcmp(a, b, n) : 0;

	return order ? order : (a_size > b_size) - (a_size < b_size);
}

/* ---- ranks ---- */

static int compare_texts(const void *a, const void *b, void *pickle)
{
	const struct pickle *p = pickle;
	const struct pickle_node *x = &p->nodes[*(const uint32_t *)a];
	const struct pickle_node *y = &p->nodes[*(const uint32_t *)b];

	return compare_bytes(pickle_bytes_of(p, x), x->count, pickle_bytes_of(p, y), y->count);
}

/* Marks the texts that are keys and, where out is not NULL, lists them.  Returns how many. */
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

static void rank_texts(struct machine *m)
{
	struct pickle *p = m->p;
	uint32_t n = collect(p, NULL), rank = 0;
	CLEANUP(free) uint32_t *keys = malloc((n + 1) * sizeof(*keys));

	if (!keys) {
		machine_fail(m, -ENOMEM, "no memory");
		return;
	}
	collect(p, keys);
	qsort_r(keys, n, sizeof(*keys), compare_texts, p);
	for (uint32_t i = 0; i < n; i++) {
		rank += i && compare_texts(&keys[i - 1], &keys[i], p);
		p->nodes[keys[i]].rank = rank;
	}
}

/* ---- dicts ---- */

/* Texts, then integers, then what is never equal to anything. */
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

/* Pairs without a key are those to drop. */
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

struct sorting {
	const struct pickle *p;
	const uint32_t *pairs;
};

/* Among equals by place. */
static int compare_pairs(const void *a, const void *b, void *sorting)
{
	const struct sorting *s = sorting;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	int order = compare_nodes(&s->p->nodes[s->pairs[2 * x]], &s->p->nodes[s->pairs[2 * y]]);

	return order ? order : (x > y) - (x < y);
}

static void sort_pairs(const struct pickle *p, const struct pickle_node *dict, uint32_t *order)
{
	struct sorting s = { p, p->words + dict->at };

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

static void seal_large(struct machine *m, struct pickle_node *dict)
{
	struct pickle *p = m->p;
	uint32_t n = dict->count / 2;

	if (!machine_room(m, (void **)&p->words, &p->words_room, p->nwords, n,
			  sizeof(*p->words), WORDS_MAX))
		return;
	dict->order = p->nwords;
	p->nwords += n;
	sort_pairs(p, dict, p->words + dict->order);
	if (merge_equals(p, dict, p->words + dict->order)) {
		drop_pairs(p, dict);
		sort_pairs(p, dict, p->words + dict->order);
	}
}

void machine_seal(struct machine *m)
{
	rank_texts(m);
	for (uint32_t i = 0; i < m->p->nnodes && !m->rc; i++) {
		struct pickle_node *n = &m->p->nodes[i];

		if (n->kind != PICKLE_DICT)
			continue;
		if (n->count / 2 >= LOOKUP_MIN)
			seal_large(m, n);
		else if (n->count)
			seal_small(m->p, n);
	}
}

/* ---- lookups ---- */

struct wanted {
	enum pickle_kind kind;
	const char *text;
	size_t size;
	int64_t integer;
};

/* As compare_nodes, but by the bytes: they are ranked so. */
static int compare_wanted(const struct pickle *p, const struct wanted *w, uint32_t key)
{
	const struct pickle_node *n = &p->nodes[key];

	if (n->kind == w->kind && w->kind == PICKLE_TEXT)
		return compare_bytes(w->text, w->size, pickle_bytes_of(p, n), n->count);
	if (n->kind == w->kind)
		return (w->integer > n->integer) - (w->integer < n->integer);
	return w->kind == PICKLE_TEXT || n->kind != PICKLE_TEXT ? -1 : 1;
}

static uint32_t bisect(const struct pickle *p, const struct pickle_node *dict,
		       const struct wanted *w)
{
	const uint32_t *pairs = p->words + dict->at, *order = p->words + dict->order;
	uint32_t low = 0, high = dict->count / 2;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int side = compare_wanted(p, w, pairs[2 * order[middle]]);

		if (!side)
			return pairs[2 * order[middle] + 1];
		if (side < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return PICKLE_NOTHING;
}

static uint32_t find(const struct pickle *p, uint32_t node, const struct wanted *w)
{
	const struct pickle_node *dict = &p->nodes[node];

	if (pickle_kind(p, node) != PICKLE_DICT)
		return PICKLE_NOTHING;
	/* While the pickle is read no dict has an order yet. */
	if (p->size && dict->count / 2 >= LOOKUP_MIN)
		return bisect(p, dict, w);
	for (uint32_t i = dict->count; i; i -= 2)
		if (!compare_wanted(p, w, p->words[dict->at + i - 2]))
			return p->words[dict->at + i - 1];
	return PICKLE_NOTHING;
}

uint32_t pickle_get_text(const struct pickle *p, uint32_t dict, const char *key, size_t size)
{
	return find(p, dict,
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
	return find(p, dict, &(struct wanted){ .kind = PICKLE_INT, .integer = key });
}
