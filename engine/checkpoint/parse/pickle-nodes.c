/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Questions about a pickle that has been read. */

#include "engine/checkpoint/parse/pickle-machine.h"

#include <string.h>

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
