/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Reads a pickle by a table of opcodes; one that is not in the table is refused. */

#include "engine/checkpoint/parse/pickle-machine.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <string.h>

/* ---- operands ---- */

static uint64_t take_number(struct pickle_machine *m, size_t n)
{
	uint64_t value = 0;

	if (!pickle_machine_need(m, n))
		return 0;
	for (size_t i = n; i--;)
		value = value << 8 | m->p->data[m->at + i];
	m->at += n;
	return value;
}

/* Takes a length of length_size bytes and the n bytes behind it; returns where these begin. */
static size_t take_counted(struct pickle_machine *m, size_t length_size, size_t *n)
{
	uint64_t length = take_number(m, length_size);
	size_t from = m->at;

	*n = 0;
	if (!pickle_machine_need(m, length))
		return from;
	*n = (size_t)length;
	m->at += *n;
	return from;
}

/* LONG4 and BINSTRING have signed lengths, which must not be negative. */
static size_t take_counted_signed(struct pickle_machine *m, size_t *n)
{
	if (pickle_machine_need(m, 4) && m->p->data[m->at + 3] & 0x80)
		pickle_machine_fail(m, -EBADMSG, "a negative length");
	return take_counted(m, 4, n);
}

/* ---- constants ---- */

static void push_node(struct pickle_machine *m, uint32_t node)
{
	pickle_machine_push(m, node);
}

static void push_unsigned(struct pickle_machine *m, uint32_t size)
{
	pickle_machine_push(m, pickle_machine_int(m, (int64_t)take_number(m, size)));
}

static void op_binint(struct pickle_machine *m)
{
	pickle_machine_push(m, pickle_machine_int(m, (int32_t)take_number(m, 4)));
}

static void op_long1(struct pickle_machine *m)
{
	size_t n, from = take_counted(m, 1, &n);

	pickle_machine_push(m, pickle_machine_little_endian(m, from, n));
}

static void op_long4(struct pickle_machine *m)
{
	size_t n, from = take_counted_signed(m, &n);

	pickle_machine_push(m, pickle_machine_little_endian(m, from, n));
}

static void op_binfloat(struct pickle_machine *m)
{
	uint64_t bits = __builtin_bswap64(take_number(m, 8));
	uint32_t node = pickle_machine_node(m, PICKLE_REAL);

	if (node)
		memcpy(&pickle_machine_at(m, node)->real, &bits, sizeof(bits));
	pickle_machine_push(m, node);
}

static void push_text(struct pickle_machine *m, uint32_t length_size)
{
	size_t n, from = take_counted(m, length_size, &n);

	pickle_machine_push(m, pickle_machine_text(m, from, n));
}

static void push_bytes(struct pickle_machine *m, uint32_t length_size)
{
	size_t n, from = take_counted(m, length_size, &n);

	pickle_machine_push(m, pickle_machine_bytes(m, PICKLE_BYTES, from, n));
}

/* Pushes Python 2's str: a text where its bytes are UTF-8, else bytes. */
static void push_string(struct pickle_machine *m, size_t from, size_t n)
{
	bool text = !m->rc && utf8_is_valid(m->p->data + from, n, true);

	pickle_machine_push(
		m, pickle_machine_bytes(m, text ? PICKLE_TEXT : PICKLE_BYTES, from, n));
}

static void op_binstring(struct pickle_machine *m)
{
	size_t n, from = take_counted_signed(m, &n);

	push_string(m, from, n);
}

static void op_short_binstring(struct pickle_machine *m)
{
	size_t n, from = take_counted(m, 1, &n);

	push_string(m, from, n);
}

/* ---- stack and memo ---- */

static void op_mark(struct pickle_machine *m)
{
	if (m->nmarks == MARKS_MAX)
		pickle_machine_fail(m, -EFBIG, "nested deeper than %d", MARKS_MAX);
	else
		m->marks[m->nmarks++] = m->nstack;
}

/* Pops the values above the topmost mark.  They stay readable where they are until the next
 * push.
 */
static const uint32_t *pop_mark(struct pickle_machine *m, uint32_t *n)
{
	uint32_t mark;

	*n = 0;
	if (!m->nmarks)
		pickle_machine_fail(m, -EBADMSG, "a mark is missing");
	if (m->rc)
		return NULL;
	mark = m->marks[--m->nmarks];
	*n = m->nstack - mark;
	m->nstack = mark;
	return m->stack + mark;
}

static void op_pop(struct pickle_machine *m)
{
	pickle_machine_pop(m);
}

static void op_pop_mark(struct pickle_machine *m)
{
	uint32_t n;

	pop_mark(m, &n);
}

static void op_dup(struct pickle_machine *m)
{
	pickle_machine_push(m, pickle_machine_top(m));
}

static void put_slot(struct pickle_machine *m, uint32_t size)
{
	pickle_machine_put(m, take_number(m, size));
}

static void get_slot(struct pickle_machine *m, uint32_t size)
{
	pickle_machine_get(m, take_number(m, size));
}

static void op_memoize(struct pickle_machine *m)
{
	pickle_machine_put(m, m->memo_count);
}

static uint64_t take_slot(struct pickle_machine *m)
{
	size_t from, size;
	uint64_t slot = 0;

	if (!pickle_machine_line(m, &from, &size))
		return 0;
	if (!size || size > 9)
		pickle_machine_fail(m, -EBADMSG, "not a memo slot");
	for (size_t i = 0; i < size && !m->rc; i++) {
		uint8_t c = m->p->data[from + i];

		if (c < '0' || c > '9')
			pickle_machine_fail(m, -EBADMSG, "not a memo slot");
		slot = slot * 10 + (c & 15u);
	}
	return slot;
}

static void op_put(struct pickle_machine *m)
{
	pickle_machine_put(m, take_slot(m));
}

static void op_get(struct pickle_machine *m)
{
	pickle_machine_get(m, take_slot(m));
}

/* ---- containers ---- */

static void push_empty(struct pickle_machine *m, uint32_t kind)
{
	pickle_machine_push(m, pickle_machine_words(m, (enum pickle_kind)kind, NULL, 0));
}

static void push_tuple(struct pickle_machine *m, const uint32_t *items, uint32_t n)
{
	uint32_t node = pickle_machine_words(m, PICKLE_TUPLE, items, n);

	for (uint32_t i = 0; node && i < n; i++)
		pickle_machine_at(m, node)->hashable &=
			pickle_machine_at(m, items[i])->hashable;
	pickle_machine_push(m, node);
}

static void op_tuple(struct pickle_machine *m)
{
	uint32_t n;
	const uint32_t *items = pop_mark(m, &n);

	push_tuple(m, items, n);
}

static void push_small_tuple(struct pickle_machine *m, uint32_t n)
{
	uint32_t items[3];

	for (uint32_t i = n; i--;)
		items[i] = pickle_machine_pop(m);
	push_tuple(m, items, n);
}

static void op_list(struct pickle_machine *m)
{
	uint32_t n;
	const uint32_t *items = pop_mark(m, &n);

	pickle_machine_push(m, pickle_machine_words(m, PICKLE_LIST, items, n));
}

/* Returns the list or dict to which items are added: the node itself, or an object's sequence
 * or items, which are made when the first item comes.
 */
static uint32_t container(struct pickle_machine *m, uint32_t node, enum pickle_kind kind)
{
	enum pickle_kind is = m->rc ? PICKLE_NOTHING : pickle_machine_at(m, node)->kind;
	uint32_t which = kind == PICKLE_DICT ? OBJECT_ITEMS : OBJECT_SEQUENCE, made;

	if (is == kind)
		return node;
	if (is != PICKLE_OBJECT) {
		pickle_machine_fail(m, -EBADMSG, "items for what is no %s",
				    kind == PICKLE_DICT ? "dict" : "list");
		return PICKLE_NOTHING;
	}
	made = pickle_words(m->p, node)[which];
	if (made)
		return made;
	made = pickle_machine_words(m, kind, NULL, 0);
	m->p->words[pickle_machine_at(m, node)->at + which] = made;
	return made;
}

static void append(struct pickle_machine *m, const uint32_t *items, uint32_t n)
{
	pickle_machine_append(m, container(m, pickle_machine_top(m), PICKLE_LIST), items, n);
}

static void op_append(struct pickle_machine *m)
{
	uint32_t item = pickle_machine_pop(m);

	append(m, &item, 1);
}

static void op_appends(struct pickle_machine *m)
{
	uint32_t n;
	const uint32_t *items = pop_mark(m, &n);

	append(m, items, n);
}

static void set(struct pickle_machine *m, uint32_t dict, const uint32_t *pairs, uint32_t n)
{
	if (n % 2)
		pickle_machine_fail(m, -EBADMSG, "a key without a value");
	pickle_machine_set(m, dict, pairs, n);
}

static void op_dict(struct pickle_machine *m)
{
	uint32_t n;
	const uint32_t *pairs = pop_mark(m, &n);
	uint32_t dict = pickle_machine_words(m, PICKLE_DICT, NULL, 0);

	set(m, dict, pairs, n);
	pickle_machine_push(m, dict);
}

static void op_setitem(struct pickle_machine *m)
{
	uint32_t pair[2];

	pair[1] = pickle_machine_pop(m);
	pair[0] = pickle_machine_pop(m);
	set(m, container(m, pickle_machine_top(m), PICKLE_DICT), pair, 2);
}

static void op_setitems(struct pickle_machine *m)
{
	uint32_t n;
	const uint32_t *pairs = pop_mark(m, &n);

	set(m, container(m, pickle_machine_top(m), PICKLE_DICT), pairs, n);
}

/* ---- objects ---- */

static bool is_tuple(struct pickle_machine *m, uint32_t node)
{
	if (!m->rc && pickle_machine_at(m, node)->kind != PICKLE_TUPLE)
		pickle_machine_fail(m, -EBADMSG, "arguments that are no tuple");
	return !m->rc;
}

static void op_global(struct pickle_machine *m)
{
	uint32_t names[2] = { 0 };
	size_t from, size;

	for (int i = 0; i < 2 && pickle_machine_line(m, &from, &size); i++)
		names[i] = pickle_machine_text(m, from, size);
	pickle_machine_push(m, pickle_machine_words(m, PICKLE_GLOBAL, names, 2));
}

static void op_stack_global(struct pickle_machine *m)
{
	uint32_t names[2];

	names[1] = pickle_machine_pop(m);
	names[0] = pickle_machine_pop(m);
	for (int i = 0; i < 2 && !m->rc; i++)
		if (pickle_machine_at(m, names[i])->kind != PICKLE_TEXT)
			pickle_machine_fail(m, -EBADMSG, "a global whose name is no text");
	pickle_machine_push(m, pickle_machine_words(m, PICKLE_GLOBAL, names, 2));
}

static void op_reduce(struct pickle_machine *m)
{
	uint32_t arguments = pickle_machine_pop(m), callee = pickle_machine_pop(m);

	if (is_tuple(m, arguments))
		pickle_machine_push(m, pickle_machine_call(m, callee, arguments));
}

static void op_newobj(struct pickle_machine *m)
{
	uint32_t arguments = pickle_machine_pop(m), class = pickle_machine_pop(m);

	if (is_tuple(m, arguments))
		pickle_machine_push(m, pickle_machine_object(m, class, arguments));
}

static void op_newobj_ex(struct pickle_machine *m)
{
	pickle_machine_pop(m); /* keyword arguments, which only __new__ would use */
	op_newobj(m);
}

/* Sets an object's state.  The state of other nodes, attributes of tensors and of dicts, is
 * dropped.
 */
static void op_build(struct pickle_machine *m)
{
	uint32_t state = pickle_machine_pop(m), node = pickle_machine_top(m);

	if (!m->rc && pickle_machine_at(m, node)->kind == PICKLE_OBJECT)
		m->p->words[pickle_machine_at(m, node)->at + OBJECT_STATE] = state;
}

static void op_binpersid(struct pickle_machine *m)
{
	pickle_machine_push(m, pickle_machine_persistent(m, pickle_machine_pop(m)));
}

/* ---- other opcodes ---- */

static void op_proto(struct pickle_machine *m)
{
	uint64_t version = take_number(m, 1);

	if (version > 5)
		pickle_machine_fail(m, -EOPNOTSUPP, "protocol %u", (unsigned)version);
}

/* Frames only tell a reader how much to buffer: their length is skipped. */
static void op_frame(struct pickle_machine *m)
{
	take_number(m, 8);
}

static void op_stop(struct pickle_machine *m)
{
	m->stopped = true;
}

/* An opcode: `op` alone; `with`, called with `number`; or `read`, whose node is pushed. */
struct opcode {
	void (*op)(struct pickle_machine *m);
	void (*with)(struct pickle_machine *m, uint32_t number);
	uint32_t number;
	uint32_t (*read)(struct pickle_machine *m);
};

static const struct opcode ops[256] = {
	['('] = { .op = op_mark },
	['.'] = { .op = op_stop },
	['0'] = { .op = op_pop },
	['1'] = { .op = op_pop_mark },
	['2'] = { .op = op_dup },
	['B'] = { .with = push_bytes, .number = 4 },
	['C'] = { .with = push_bytes, .number = 1 },
	['F'] = { .read = pickle_machine_read_float },
	['G'] = { .op = op_binfloat },
	['I'] = { .read = pickle_machine_read_integer },
	['J'] = { .op = op_binint },
	['K'] = { .with = push_unsigned, .number = 1 },
	['L'] = { .read = pickle_machine_read_long },
	['M'] = { .with = push_unsigned, .number = 2 },
	['N'] = { .with = push_node, .number = NODE_NONE },
	['Q'] = { .op = op_binpersid },
	['R'] = { .op = op_reduce },
	['S'] = { .read = pickle_machine_read_string },
	['T'] = { .op = op_binstring },
	['U'] = { .op = op_short_binstring },
	['V'] = { .read = pickle_machine_read_unicode },
	['X'] = { .with = push_text, .number = 4 },
	[']'] = { .with = push_empty, .number = PICKLE_LIST },
	['a'] = { .op = op_append },
	['b'] = { .op = op_build },
	['c'] = { .op = op_global },
	['d'] = { .op = op_dict },
	['e'] = { .op = op_appends },
	['g'] = { .op = op_get },
	['h'] = { .with = get_slot, .number = 1 },
	['j'] = { .with = get_slot, .number = 4 },
	['l'] = { .op = op_list },
	['p'] = { .op = op_put },
	['q'] = { .with = put_slot, .number = 1 },
	['r'] = { .with = put_slot, .number = 4 },
	['s'] = { .op = op_setitem },
	['t'] = { .op = op_tuple },
	['u'] = { .op = op_setitems },
	[')'] = { .with = push_node, .number = NODE_EMPTY_TUPLE },
	['}'] = { .with = push_empty, .number = PICKLE_DICT },
	[0x80] = { .op = op_proto },
	[0x81] = { .op = op_newobj },
	[0x85] = { .with = push_small_tuple, .number = 1 },
	[0x86] = { .with = push_small_tuple, .number = 2 },
	[0x87] = { .with = push_small_tuple, .number = 3 },
	[0x88] = { .with = push_node, .number = NODE_TRUE },
	[0x89] = { .with = push_node, .number = NODE_FALSE },
	[0x8a] = { .op = op_long1 },
	[0x8b] = { .op = op_long4 },
	[0x8c] = { .with = push_text, .number = 1 },
	[0x8d] = { .with = push_text, .number = 8 },
	[0x8e] = { .with = push_bytes, .number = 8 },
	[0x8f] = { .with = push_empty, .number = PICKLE_LIST },
	[0x90] = { .op = op_appends },
	[0x91] = { .op = op_tuple }, /* a frozenset */
	[0x92] = { .op = op_newobj_ex },
	[0x93] = { .op = op_stack_global },
	[0x94] = { .op = op_memoize },
	[0x95] = { .op = op_frame },
	[0x96] = { .with = push_bytes, .number = 8 },
};

/* ---- the whole ---- */

static void make_fixed(struct pickle_machine *m)
{
	pickle_machine_node(m, PICKLE_NOTHING);
	pickle_machine_node(m, PICKLE_NONE);
	pickle_machine_node(m, PICKLE_BOOL);
	pickle_machine_node(m, PICKLE_BOOL);
	pickle_machine_words(m, PICKLE_TUPLE, NULL, 0);
	if (m->rc)
		return;
	assert(m->p->nnodes == NODES_FIXED);
	pickle_machine_at(m, PICKLE_NOTHING)->hashable = false;
	pickle_machine_at(m, NODE_TRUE)->integer = 1;
}

static void run(struct pickle_machine *m)
{
	int rc;

	make_fixed(m);
	while (!m->rc && !m->stopped) {
		uint8_t code = (uint8_t)take_number(m, 1);
		const struct opcode *o = &ops[code];

		if (m->rc)
			break;
		if (o->op)
			o->op(m);
		else if (o->with)
			o->with(m, o->number);
		else if (o->read)
			pickle_machine_push(m, o->read(m));
		else
			pickle_machine_fail(m, -EOPNOTSUPP, "opcode 0x%02x is not taken", code);
	}
	if (m->rc)
		return;
	m->p->root = pickle_machine_pop(m);
	if (m->nstack || m->nmarks)
		pickle_machine_fail(m, -EBADMSG, "values are left over");
	m->p->size = m->at;
	rc = m->rc ? 0 : pickle_seal(m->p);
	if (rc)
		pickle_machine_fail(m, rc, rc == -EFBIG ? "too much in it" : "no memory");
}

static void *shrink(void *array, size_t size)
{
	void *smaller = realloc(array, size ? size : 1);

	return smaller ? smaller : array;
}

int pickle_read(struct pickle **out, const struct blob *b, uint64_t at, uint64_t size,
		struct parse_error *error)
{
	struct pickle_machine *m = calloc(1, sizeof(*m));
	struct pickle *p = calloc(1, sizeof(*p));
	int rc = m && p ? 0 : parse_error_set(error, -ENOMEM, "no memory");

	if (!rc)
		rc = blob_part(b, at, size, &p->blob, error);
	if (!rc) {
		m->p = p;
		m->error = error;
		run(m);
		rc = m->rc;
		free(m->stack);
		free(m->memo);
	}
	free(m);
	if (rc) {
		pickle_free(p);
		return rc;
	}
	p->data = shrink(p->data, p->size);
	p->nodes = shrink(p->nodes, p->nnodes * sizeof(*p->nodes));
	p->words = shrink(p->words, p->nwords * sizeof(*p->words));
	*out = p;
	return 0;
}
