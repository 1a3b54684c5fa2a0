/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Reads a pickle: one function an opcode, or a few; what is not in the table is refused. */

#include "engine/checkpoint/parse/pickle-machine.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <string.h>

/* ---- operands ---- */

static uint64_t take(struct machine *m, size_t n)
{
	uint64_t value = 0;

	if (!machine_need(m, n))
		return 0;
	for (size_t i = n; i--;)
		value = value << 8 | m->p->data[m->at + i];
	m->at += n;
	return value;
}

/* Takes a length of length_size bytes and the n bytes behind it; returns where these begin. */
static size_t take_counted(struct machine *m, size_t length_size, size_t *n)
{
	uint64_t length = take(m, length_size);
	size_t from = m->at;

	*n = 0;
	if (!machine_need(m, length))
		return from;
	*n = (size_t)length;
	m->at += *n;
	return from;
}

/* LONG4 and BINSTRING have signed lengths, which must not be negative. */
static size_t take_counted_signed(struct machine *m, size_t *n)
{
	if (machine_need(m, 4) && m->p->data[m->at + 3] & 0x80)
		machine_fail(m, -EBADMSG, "a negative length");
	return take_counted(m, 4, n);
}

/* ---- constants ---- */

static void op_none(struct machine *m)
{
	machine_push(m, NODE_NONE);
}

static void op_true(struct machine *m)
{
	machine_push(m, NODE_TRUE);
}

static void op_false(struct machine *m)
{
	machine_push(m, NODE_FALSE);
}

static void op_binint(struct machine *m)
{
	machine_push(m, machine_int(m, (int32_t)take(m, 4)));
}

static void op_binint1(struct machine *m)
{
	machine_push(m, machine_int(m, (int64_t)take(m, 1)));
}

static void op_binint2(struct machine *m)
{
	machine_push(m, machine_int(m, (int64_t)take(m, 2)));
}

static void op_long1(struct machine *m)
{
	size_t n, from = take_counted(m, 1, &n);

	machine_push(m, machine_little_endian(m, from, n));
}

static void op_long4(struct machine *m)
{
	size_t n, from = take_counted_signed(m, &n);

	machine_push(m, machine_little_endian(m, from, n));
}

static void op_binfloat(struct machine *m)
{
	uint64_t bits = __builtin_bswap64(take(m, 8));
	uint32_t node = machine_node(m, PICKLE_REAL);

	if (node)
		memcpy(&machine_at(m, node)->real, &bits, sizeof(bits));
	machine_push(m, node);
}

static void op_int(struct machine *m)
{
	machine_push(m, machine_read_integer(m));
}

static void op_long(struct machine *m)
{
	machine_push(m, machine_read_long(m));
}

static void op_float(struct machine *m)
{
	machine_push(m, machine_read_float(m));
}

static void op_string(struct machine *m)
{
	machine_push(m, machine_read_string(m));
}

static void op_unicode(struct machine *m)
{
	machine_push(m, machine_read_unicode(m));
}

static void push_text(struct machine *m, size_t length_size)
{
	size_t n, from = take_counted(m, length_size, &n);

	machine_push(m, machine_text(m, from, n));
}

static void op_binunicode(struct machine *m)
{
	push_text(m, 4);
}

static void op_short_binunicode(struct machine *m)
{
	push_text(m, 1);
}

static void op_binunicode8(struct machine *m)
{
	push_text(m, 8);
}

static void push_bytes(struct machine *m, size_t length_size)
{
	size_t n, from = take_counted(m, length_size, &n);

	machine_push(m, machine_bytes(m, PICKLE_BYTES, from, n));
}

static void op_binbytes(struct machine *m)
{
	push_bytes(m, 4);
}

static void op_short_binbytes(struct machine *m)
{
	push_bytes(m, 1);
}

static void op_binbytes8(struct machine *m)
{
	push_bytes(m, 8);
}

/* Python 2's str: a text where it can be one. */
static void push_string(struct machine *m, size_t from, size_t n)
{
	bool text = !m->rc && utf8_is_valid(m->p->data + from, n, true);

	machine_push(m, machine_bytes(m, text ? PICKLE_TEXT : PICKLE_BYTES, from, n));
}

static void op_binstring(struct machine *m)
{
	size_t n, from = take_counted_signed(m, &n);

	push_string(m, from, n);
}

static void op_short_binstring(struct machine *m)
{
	size_t n, from = take_counted(m, 1, &n);

	push_string(m, from, n);
}

/* ---- stack and memo ---- */

static void op_mark(struct machine *m)
{
	if (m->nmarks == MARKS_MAX)
		machine_fail(m, -EFBIG, "nested deeper than %d", MARKS_MAX);
	else
		m->marks[m->nmarks++] = m->nstack;
}

/* Pops the values above the topmost mark.  They stay readable where they are until the next
 * push.
 */
static const uint32_t *pop_mark(struct machine *m, uint32_t *n)
{
	uint32_t mark;

	*n = 0;
	if (!m->nmarks)
		machine_fail(m, -EBADMSG, "a mark is missing");
	if (m->rc)
		return NULL;
	mark = m->marks[--m->nmarks];
	*n = m->nstack - mark;
	m->nstack = mark;
	return m->stack + mark;
}

static void op_pop(struct machine *m)
{
	machine_pop(m);
}

static void op_pop_mark(struct machine *m)
{
	uint32_t n;

	pop_mark(m, &n);
}

static void op_dup(struct machine *m)
{
	machine_push(m, machine_top(m));
}

static void op_binput(struct machine *m)
{
	machine_put(m, take(m, 1));
}

static void op_long_binput(struct machine *m)
{
	machine_put(m, take(m, 4));
}

static void op_memoize(struct machine *m)
{
	machine_put(m, m->memo_count);
}

static void op_binget(struct machine *m)
{
	machine_get(m, take(m, 1));
}

static void op_long_binget(struct machine *m)
{
	machine_get(m, take(m, 4));
}

static uint64_t take_slot(struct machine *m)
{
	size_t from, size;
	uint64_t slot = 0;

	if (!machine_line(m, &from, &size))
		return 0;
	if (!size || size > 9)
		machine_fail(m, -EBADMSG, "not a memo slot");
	for (size_t i = 0; i < size && !m->rc; i++) {
		uint8_t c = m->p->data[from + i];

		if (c < '0' || c > '9')
			machine_fail(m, -EBADMSG, "not a memo slot");
		slot = slot * 10 + (c & 15u);
	}
	return slot;
}

static void op_put(struct machine *m)
{
	machine_put(m, take_slot(m));
}

static void op_get(struct machine *m)
{
	machine_get(m, take_slot(m));
}

/* ---- containers ---- */

static void op_empty_list(struct machine *m)
{
	machine_push(m, machine_words(m, PICKLE_LIST, NULL, 0));
}

static void op_empty_dict(struct machine *m)
{
	machine_push(m, machine_words(m, PICKLE_DICT, NULL, 0));
}

static void op_empty_tuple(struct machine *m)
{
	machine_push(m, NODE_EMPTY_TUPLE);
}

static void push_tuple(struct machine *m, const uint32_t *items, uint32_t n)
{
	uint32_t node = machine_words(m, PICKLE_TUPLE, items, n);

	for (uint32_t i = 0; node && i < n; i++)
		machine_at(m, node)->hashable &= machine_at(m, items[i])->hashable;
	machine_push(m, node);
}

static void op_tuple(struct machine *m)
{
	uint32_t n;
	const uint32_t *items = pop_mark(m, &n);

	push_tuple(m, items, n);
}

static void push_small_tuple(struct machine *m, uint32_t n)
{
	uint32_t items[3];

	for (uint32_t i = n; i--;)
		items[i] = machine_pop(m);
	push_tuple(m, items, n);
}

static void op_tuple1(struct machine *m)
{
	push_small_tuple(m, 1);
}

static void op_tuple2(struct machine *m)
{
	push_small_tuple(m, 2);
}

static void op_tuple3(struct machine *m)
{
	push_small_tuple(m, 3);
}

static void op_list(struct machine *m)
{
	uint32_t n;
	const uint32_t *items = pop_mark(m, &n);

	machine_push(m, machine_words(m, PICKLE_LIST, items, n));
}

/* The list or dict to which items are added: the node itself, or an object's sequence or items,
 * which are made when the first one comes.
 */
static uint32_t container(struct machine *m, uint32_t node, enum pickle_kind kind)
{
	enum pickle_kind is = m->rc ? PICKLE_NOTHING : machine_at(m, node)->kind;
	uint32_t which = kind == PICKLE_DICT ? OBJECT_ITEMS : OBJECT_SEQUENCE, made;

	if (is == kind)
		return node;
	if (is != PICKLE_OBJECT) {
		machine_fail(m, -EBADMSG, "items for what is no %s",
			     kind == PICKLE_DICT ? "dict" : "list");
		return PICKLE_NOTHING;
	}
	made = pickle_words(m->p, node)[which];
	if (made)
		return made;
	made = machine_words(m, kind, NULL, 0);
	m->p->words[machine_at(m, node)->at + which] = made;
	return made;
}

static void append(struct machine *m, const uint32_t *items, uint32_t n)
{
	machine_append(m, container(m, machine_top(m), PICKLE_LIST), items, n);
}

static void op_append(struct machine *m)
{
	uint32_t item = machine_pop(m);

	append(m, &item, 1);
}

static void op_appends(struct machine *m)
{
	uint32_t n;
	const uint32_t *items = pop_mark(m, &n);

	append(m, items, n);
}

static void set(struct machine *m, uint32_t dict, const uint32_t *pairs, uint32_t n)
{
	if (n % 2)
		machine_fail(m, -EBADMSG, "a key without a value");
	machine_set(m, dict, pairs, n);
}

static void op_dict(struct machine *m)
{
	uint32_t n;
	const uint32_t *pairs = pop_mark(m, &n);
	uint32_t dict = machine_words(m, PICKLE_DICT, NULL, 0);

	set(m, dict, pairs, n);
	machine_push(m, dict);
}

static void op_setitem(struct machine *m)
{
	uint32_t pair[2];

	pair[1] = machine_pop(m);
	pair[0] = machine_pop(m);
	set(m, container(m, machine_top(m), PICKLE_DICT), pair, 2);
}

static void op_setitems(struct machine *m)
{
	uint32_t n;
	const uint32_t *pairs = pop_mark(m, &n);

	set(m, container(m, machine_top(m), PICKLE_DICT), pairs, n);
}

/* ---- objects ---- */

static bool is_tuple(struct machine *m, uint32_t node)
{
	if (!m->rc && machine_at(m, node)->kind != PICKLE_TUPLE)
		machine_fail(m, -EBADMSG, "arguments that are no tuple");
	return !m->rc;
}

static void op_global(struct machine *m)
{
	uint32_t names[2] = { 0 };
	size_t from, size;

	for (int i = 0; i < 2 && machine_line(m, &from, &size); i++)
		names[i] = machine_text(m, from, size);
	machine_push(m, machine_words(m, PICKLE_GLOBAL, names, 2));
}

static void op_stack_global(struct machine *m)
{
	uint32_t names[2];

	names[1] = machine_pop(m);
	names[0] = machine_pop(m);
	for (int i = 0; i < 2 && !m->rc; i++)
		if (machine_at(m, names[i])->kind != PICKLE_TEXT)
			machine_fail(m, -EBADMSG, "a global whose name is no text");
	machine_push(m, machine_words(m, PICKLE_GLOBAL, names, 2));
}

static void op_reduce(struct machine *m)
{
	uint32_t arguments = machine_pop(m), callee = machine_pop(m);

	if (is_tuple(m, arguments))
		machine_push(m, machine_call(m, callee, arguments));
}

static void op_newobj(struct machine *m)
{
	uint32_t arguments = machine_pop(m), class = machine_pop(m);

	if (is_tuple(m, arguments))
		machine_push(m, machine_object(m, class, arguments));
}

static void op_newobj_ex(struct machine *m)
{
	machine_pop(m); /* keyword arguments, which only __new__ would use */
	op_newobj(m);
}

/* The state of a node that is no object is dropped: attributes of tensors and of dicts. */
static void op_build(struct machine *m)
{
	uint32_t state = machine_pop(m), node = machine_top(m);

	if (!m->rc && machine_at(m, node)->kind == PICKLE_OBJECT)
		m->p->words[machine_at(m, node)->at + OBJECT_STATE] = state;
}

static void op_binpersid(struct machine *m)
{
	machine_push(m, machine_persistent(m, machine_pop(m)));
}

/* ---- the rest ---- */

static void op_proto(struct machine *m)
{
	uint64_t version = take(m, 1);

	if (version > 5)
		machine_fail(m, -EOPNOTSUPP, "protocol %u", (unsigned)version);
}

static void op_frame(struct machine *m)
{
	take(m, 8);
}

static void op_stop(struct machine *m)
{
	m->stopped = true;
}

static void (*const ops[256])(struct machine *m) = {
	['('] = op_mark,
	['.'] = op_stop,
	['0'] = op_pop,
	['1'] = op_pop_mark,
	['2'] = op_dup,
	['B'] = op_binbytes,
	['C'] = op_short_binbytes,
	['F'] = op_float,
	['G'] = op_binfloat,
	['I'] = op_int,
	['J'] = op_binint,
	['K'] = op_binint1,
	['L'] = op_long,
	['M'] = op_binint2,
	['N'] = op_none,
	['Q'] = op_binpersid,
	['R'] = op_reduce,
	['S'] = op_string,
	['T'] = op_binstring,
	['U'] = op_short_binstring,
	['V'] = op_unicode,
	['X'] = op_binunicode,
	[']'] = op_empty_list,
	['a'] = op_append,
	['b'] = op_build,
	['c'] = op_global,
	['d'] = op_dict,
	['e'] = op_appends,
	['g'] = op_get,
	['h'] = op_binget,
	['j'] = op_long_binget,
	['l'] = op_list,
	['p'] = op_put,
	['q'] = op_binput,
	['r'] = op_long_binput,
	['s'] = op_setitem,
	['t'] = op_tuple,
	['u'] = op_setitems,
	[')'] = op_empty_tuple,
	['}'] = op_empty_dict,
	[0x80] = op_proto,
	[0x81] = op_newobj,
	[0x85] = op_tuple1,
	[0x86] = op_tuple2,
	[0x87] = op_tuple3,
	[0x88] = op_true,
	[0x89] = op_false,
	[0x8a] = op_long1,
	[0x8b] = op_long4,
	[0x8c] = op_short_binunicode,
	[0x8d] = op_binunicode8,
	[0x8e] = op_binbytes8,
	[0x8f] = op_empty_list,
	[0x90] = op_appends,
	[0x91] = op_tuple, /* a frozenset */
	[0x92] = op_newobj_ex,
	[0x93] = op_stack_global,
	[0x94] = op_memoize,
	[0x95] = op_frame,
	[0x96] = op_binbytes8,
};

static void step(struct machine *m)
{
	uint8_t op = (uint8_t)take(m, 1);

	if (m->rc)
		return;
	if (ops[op])
		ops[op](m);
	else
		machine_fail(m, -EOPNOTSUPP, "opcode 0x%02x is not taken", op);
}

/* ---- the whole ---- */

static void make_fixed(struct machine *m)
{
	machine_node(m, PICKLE_NOTHING);
	machine_node(m, PICKLE_NONE);
	machine_node(m, PICKLE_BOOL);
	machine_node(m, PICKLE_BOOL);
	machine_words(m, PICKLE_TUPLE, NULL, 0);
	if (m->rc)
		return;
	assert(m->p->nnodes == NODES_FIXED);
	machine_at(m, PICKLE_NOTHING)->hashable = false;
	machine_at(m, NODE_TRUE)->integer = 1;
}

static void run(struct machine *m)
{
	int rc;

	make_fixed(m);
	while (!m->rc && !m->stopped)
		step(m);
	if (m->rc)
		return;
	m->p->root = machine_pop(m);
	if (m->nstack || m->nmarks)
		machine_fail(m, -EBADMSG, "values are left over");
	m->p->size = m->at;
	rc = m->rc ? 0 : pickle_seal(m->p);
	if (rc)
		machine_fail(m, rc, rc == -EFBIG ? "too much in it" : "no memory");
}

static void *shrink(void *array, size_t size)
{
	void *smaller = realloc(array, size ? size : 1);

	return smaller ? smaller : array;
}

static void trim(struct pickle *p)
{
	p->data = shrink(p->data, p->size);
	p->nodes = shrink(p->nodes, p->nnodes * sizeof(*p->nodes));
	p->words = shrink(p->words, p->nwords * sizeof(*p->words));
}

int pickle_read(struct pickle **out, const struct blob *b, uint64_t at, uint64_t size,
		struct parse_error *error)
{
	struct machine *m = calloc(1, sizeof(*m));
	struct pickle *p = calloc(1, sizeof(*p));
	int rc = m && p ? 0 : parse_fail(error, -ENOMEM, "no memory");

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
	trim(p);
	*out = p;
	return 0;
}
