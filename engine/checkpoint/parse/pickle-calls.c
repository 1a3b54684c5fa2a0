/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* The table of callees: which node a REDUCE of each yields.  No Python code runs. */

#include "engine/checkpoint/parse/pickle-machine.h"
#include "engine/checkpoint/parse/torch-dtype.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <string.h>

uint32_t pickle_machine_object(struct pickle_machine *m, uint32_t callee, uint32_t arguments)
{
	uint32_t words[OBJECT_WORDS] = {
		[OBJECT_CALLEE] = callee, [OBJECT_ARGUMENTS] = arguments
	};

	return pickle_machine_words(m, PICKLE_OBJECT, words, OBJECT_WORDS);
}

/* ---- containers ---- */

static uint32_t call_dict(struct pickle_machine *m, uint32_t callee, uint32_t arguments)
{
	uint32_t pairs = pickle_item(m->p, arguments, 0), n = pickle_count(m->p, pairs);
	uint32_t dict = pickle_machine_words(m, PICKLE_DICT, NULL, 0);

	if (pickle_kind(m->p, pairs) != PICKLE_LIST)
		return dict;
	pickle_machine_charge(m, n);
	for (uint32_t i = 0; i < n && !m->rc; i++) {
		uint32_t pair = pickle_item(m->p, pairs, i);
		uint32_t words[2] = { pickle_item(m->p, pair, 0), pickle_item(m->p, pair, 1) };

		if (pickle_count(m->p, pair) != 2 || !words[0])
			pickle_machine_fail(m, -EBADMSG, "a dict of what are no pairs");
		pickle_machine_set(m, dict, words, 2);
	}
	return m->rc ? PICKLE_NOTHING : dict;
}

static bool is_sequence(struct pickle_machine *m, uint32_t node)
{
	enum pickle_kind kind = pickle_kind(m->p, node);

	return kind == PICKLE_LIST || kind == PICKLE_TUPLE;
}

/* Copies a sequence: items that are later added to a set do not show in the list of which it
 * was made.
 */
static uint32_t copy(struct pickle_machine *m, enum pickle_kind kind, uint32_t items)
{
	uint32_t n = pickle_count(m->p, items), node = pickle_machine_words(m, kind, NULL, 0);

	pickle_machine_charge(m, n);
	for (uint32_t i = 0; i < n && !m->rc; i++) {
		uint32_t item = pickle_item(m->p, items, i);

		pickle_machine_append(m, node, &item, 1);
		pickle_machine_at(m, node)->hashable &= pickle_machine_at(m, item)->hashable;
	}
	return m->rc ? PICKLE_NOTHING : node;
}

static uint32_t call_set(struct pickle_machine *m, uint32_t callee, uint32_t arguments)
{
	uint32_t items = pickle_item(m->p, arguments, 0);

	return is_sequence(m, items) || !items ? copy(m, PICKLE_LIST, items)
					       : pickle_machine_object(m, callee, arguments);
}

static uint32_t call_frozenset(struct pickle_machine *m, uint32_t callee, uint32_t arguments)
{
	uint32_t items = pickle_item(m->p, arguments, 0);

	return is_sequence(m, items) || !items ? copy(m, PICKLE_TUPLE, items)
					       : pickle_machine_object(m, callee, arguments);
}

static uint32_t call_size(struct pickle_machine *m, uint32_t callee, uint32_t arguments)
{
	uint32_t sizes = pickle_item(m->p, arguments, 0);

	if (pickle_kind(m->p, sizes) == PICKLE_TUPLE)
		return sizes;
	return is_sequence(m, sizes) ? copy(m, PICKLE_TUPLE, sizes)
				     : pickle_machine_object(m, callee, arguments);
}

/* Protocol 2 has no opcode for bytes: Python writes encode(text, "latin1"). */
static uint32_t call_encode(struct pickle_machine *m, uint32_t callee, uint32_t arguments)
{
	uint32_t text = pickle_item(m->p, arguments, 0), name = pickle_item(m->p, arguments, 1);
	const struct pickle_node *n = &m->p->nodes[text];
	uint32_t code = 0, size = n->count;
	uint8_t *out;
	size_t made = 0;

	if (n->kind != PICKLE_TEXT ||
	    !(pickle_is_text(m->p, name, "latin1") || pickle_is_text(m->p, name, "latin-1")))
		return pickle_machine_object(m, callee, arguments);
	out = pickle_machine_decode(m, size);
	if (!out)
		return PICKLE_NOTHING;
	for (size_t i = 0; i < size; out[made++] = (uint8_t)code) {
		i += utf8_get(pickle_bytes_of(m->p, n) + i, &code);
		if (code > 0xff) {
			pickle_machine_fail(m, -EBADMSG, "bytes that are not Latin-1");
			return PICKLE_NOTHING;
		}
	}
	return pickle_machine_decoded(m, PICKLE_BYTES, made);
}

/* ---- DeepSpeed's enumeration of stages ---- */

static bool is_stages(const struct pickle *p, uint32_t node)
{
	return pickle_is_global(p, node, "deepspeed.runtime.zero.config", "ZeroStageEnum") ||
	       pickle_is_global(p, node, "deepspeed.runtime.zero.constants", "ZeroStageEnum");
}

static uint32_t call_stage(struct pickle_machine *m, uint32_t callee, uint32_t arguments)
{
	uint32_t stage = pickle_item(m->p, arguments, 0);

	return pickle_kind(m->p, stage) == PICKLE_INT
		       ? stage
		       : pickle_machine_object(m, callee, arguments);
}

/* CPython 3.11.0 to 3.11.3 write a member of an enumeration as getattr(class, name). */
static uint32_t call_getattr(struct pickle_machine *m, uint32_t callee, uint32_t arguments)
{
	static const char *const stages[] = { "disabled", "optimizer_states", "gradients",
					      "weights" };
	uint32_t name = pickle_item(m->p, arguments, 1);

	if (is_stages(m->p, pickle_item(m->p, arguments, 0)))
		for (size_t i = 0; i < ARRAY_SIZE(stages); i++)
			if (pickle_is_text(m->p, name, stages[i]))
				return pickle_machine_int(m, (int64_t)i);
	return pickle_machine_object(m, callee, arguments);
}

/* ---- tensors ---- */

static bool tensor_parts(struct pickle_machine *m, uint32_t arguments, uint32_t *words)
{
	const struct pickle *p = m->p;

	for (uint32_t i = 0; i < 4; i++)
		words[TENSOR_STORAGE + i] = pickle_item(p, arguments, i);
	if (pickle_kind(p, words[TENSOR_STORAGE]) == PICKLE_STORAGE &&
	    pickle_kind(p, words[TENSOR_OFFSET]) == PICKLE_INT &&
	    pickle_kind(p, words[TENSOR_SHAPE]) == PICKLE_TUPLE &&
	    pickle_kind(p, words[TENSOR_STRIDE]) == PICKLE_TUPLE &&
	    pickle_count(p, words[TENSOR_SHAPE]) == pickle_count(p, words[TENSOR_STRIDE]))
		return true;
	pickle_machine_fail(m, -EBADMSG, "a tensor without storage, offset, shape and stride");
	return false;
}

/* Returns true for a tensor that is negated or conjugated lazily: its bytes are not its values.
 */
static bool is_lazy(struct pickle_machine *m, uint32_t metadata)
{
	const struct pickle *p = m->p;
	bool conj = false, neg = false;

	pickle_machine_charge(m, pickle_count(p, metadata)); /* two searches */
	pickle_bool(p, pickle_get_text(p, metadata, "conj", 4), &conj);
	pickle_bool(p, pickle_get_text(p, metadata, "neg", 3), &neg);
	return conj || neg;
}

static uint32_t call_tensor(struct pickle_machine *m, uint32_t callee, uint32_t arguments)
{
	uint32_t words[TENSOR_WORDS];

	if (!tensor_parts(m, arguments, words))
		return PICKLE_NOTHING;
	if (is_lazy(m, pickle_item(m->p, arguments, 6)))
		return pickle_machine_object(m, callee, arguments);
	words[TENSOR_DTYPE] = pickle_words(m->p, words[TENSOR_STORAGE])[STORAGE_DTYPE];
	return pickle_machine_words(m, PICKLE_TENSOR, words, TENSOR_WORDS);
}

/* _rebuild_tensor_v3(storage, offset, ...): the storage is untyped and counts bytes; argument 6
 * is the tensor's dtype.
 */
static uint32_t call_tensor_v3(struct pickle_machine *m, uint32_t callee, uint32_t arguments)
{
	uint32_t words[TENSOR_WORDS], type = pickle_item(m->p, arguments, 6);
	enum frag_dtype dtype;
	const char *name;
	size_t size = 0;

	if (!tensor_parts(m, arguments, words))
		return PICKLE_NOTHING;
	name = pickle_text(m->p, pickle_name(m->p, type), &size);
	if (!name || !pickle_is_text(m->p, pickle_module(m->p, type), "torch")) {
		pickle_machine_fail(m, -EBADMSG, "a tensor without a type");
		return PICKLE_NOTHING;
	}
	if (!torch_dtype_by_name(name, size, &dtype) ||
	    is_lazy(m, pickle_item(m->p, arguments, 7)))
		return pickle_machine_object(m, callee, arguments);
	words[TENSOR_DTYPE] = dtype;
	return pickle_machine_words(m, PICKLE_TENSOR, words, TENSOR_WORDS);
}

static uint32_t call_parameter(struct pickle_machine *m, uint32_t callee, uint32_t arguments)
{
	uint32_t data = pickle_item(m->p, arguments, 0);

	return data ? data : pickle_machine_object(m, callee, arguments);
}

static uint32_t call_from_type(struct pickle_machine *m, uint32_t callee, uint32_t arguments);

/* ---- the table ---- */

typedef uint32_t call(struct pickle_machine *m, uint32_t callee, uint32_t arguments);

static const struct callee {
	const char *module, *name;
	call *call;
} table[] = {
	{ "torch._utils", "_rebuild_tensor_v2", call_tensor },
	{ "torch._utils", "_rebuild_tensor", call_tensor },
	{ "torch._utils", "_rebuild_tensor_v3", call_tensor_v3 },
	{ "torch._tensor", "_rebuild_from_type_v2", call_from_type },
	{ "torch._utils", "_rebuild_parameter", call_parameter },
	{ "torch._utils", "_rebuild_parameter_with_state", call_parameter },
	{ "collections", "OrderedDict", call_dict },
	{ "builtins", "dict", call_dict },
	{ "__builtin__", "dict", call_dict },
	{ "torch", "Size", call_size },
	{ "builtins", "set", call_set },
	{ "__builtin__", "set", call_set },
	{ "builtins", "frozenset", call_frozenset },
	{ "__builtin__", "frozenset", call_frozenset },
	{ "_codecs", "encode", call_encode },
	{ "builtins", "getattr", call_getattr },
	{ "__builtin__", "getattr", call_getattr },
	{ "deepspeed.runtime.zero.config", "ZeroStageEnum", call_stage },
	{ "deepspeed.runtime.zero.constants", "ZeroStageEnum", call_stage },
};

static call *find_call(const struct pickle *p, uint32_t callee)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (pickle_is_global(p, callee, table[i].module, table[i].name))
			return table[i].call;
	return pickle_machine_object;
}

/* _rebuild_from_type_v2(function, class, arguments, state): a tensor with attributes. */
static uint32_t call_from_type(struct pickle_machine *m, uint32_t callee, uint32_t arguments)
{
	const struct pickle *p = m->p;
	uint32_t class = pickle_item(p, arguments, 1), inner = pickle_item(p, arguments, 2);
	call *function = find_call(p, pickle_item(p, arguments, 0));

	if (!pickle_is_plain_class(p, class) || pickle_kind(p, inner) != PICKLE_TUPLE ||
	    (function != call_tensor && function != call_tensor_v3))
		return pickle_machine_object(m, callee, arguments);
	return function(m, pickle_item(p, arguments, 0), inner);
}

uint32_t pickle_machine_call(struct pickle_machine *m, uint32_t callee, uint32_t arguments)
{
	return find_call(m->p, callee)(m, callee, arguments);
}

/* ---- persistent ids ---- */

static bool is_storage_module(const struct pickle *p, uint32_t class)
{
	size_t size;
	const char *module = pickle_text(p, pickle_module(p, class), &size);

	return module && size >= 5 && !memcmp(module, "torch", 5) &&
	       (size == 5 || module[5] == '.');
}

/* Returns true for ('storage', class, key, location, elements); the old format has a sixth
 * item, None.
 */
static bool is_storage_id(const struct pickle *p, uint32_t id)
{
	uint32_t n = pickle_kind(p, id) == PICKLE_TUPLE ? pickle_count(p, id) : 0;

	return (n == 5 || (n == 6 && pickle_item(p, id, 5) == NODE_NONE)) &&
	       pickle_is_text(p, pickle_item(p, id, 0), "storage") &&
	       is_storage_module(p, pickle_item(p, id, 1)) &&
	       pickle_kind(p, pickle_item(p, id, 2)) == PICKLE_TEXT;
}

/* Returns true for ('module', class, file, source): old torch wrote the class of a module with
 * its source.
 */
static bool is_module_id(const struct pickle *p, uint32_t id)
{
	return pickle_kind(p, id) == PICKLE_TUPLE && pickle_count(p, id) == 4 &&
	       pickle_is_text(p, pickle_item(p, id, 0), "module") &&
	       pickle_kind(p, pickle_item(p, id, 1)) == PICKLE_GLOBAL;
}

uint32_t pickle_machine_persistent(struct pickle_machine *m, uint32_t id)
{
	const struct pickle *p = m->p;
	uint32_t words[STORAGE_WORDS], class = pickle_item(p, id, 1);
	enum frag_dtype dtype = 0;
	int64_t numel = -1;
	size_t size = 0;
	const char *name = pickle_text(p, pickle_name(p, class), &size);

	if (is_module_id(p, id))
		return class;
	if (!is_storage_id(p, id)) {
		pickle_machine_fail(m, -EBADMSG, "a persistent id that is no storage");
		return PICKLE_NOTHING;
	}
	pickle_int(p, pickle_item(p, id, 4), &numel);
	if (!torch_dtype_by_storage(name, size, &dtype))
		pickle_machine_fail(m, -EOPNOTSUPP, "a storage of type %.*s",
				    (int)u64_min(size, 64), name);
	else if (numel < 0 || numel >= (int64_t)1 << 62)
		pickle_machine_fail(m, -EBADMSG, "a storage of an impossible size");
	words[STORAGE_DTYPE] = dtype;
	words[STORAGE_KEY] = pickle_item(p, id, 2);
	words[STORAGE_NUMEL] = pickle_item(p, id, 4);
	return pickle_machine_words(m, PICKLE_STORAGE, words, STORAGE_WORDS);
}
