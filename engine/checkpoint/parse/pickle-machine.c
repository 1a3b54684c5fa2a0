/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* The machine's store, stack and memo; numbers and texts, above all those of protocol 0. */

#include "engine/checkpoint/parse/pickle-machine.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* bytes that are read first; characters of a decimal */
enum { LOAD_FIRST = 16384, NUMBER_MAX = 63 };

void pickle_machine_fail(struct pickle_machine *m, int rc, const char *fmt, ...)
{
	char why[120];
	va_list args;

	if (m->rc)
		return;
	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	m->rc = parse_error_set(m->error, rc, "pickle before byte %" PRIu64 ": %s",
				m->p->blob.start + m->at, why);
}

/* Makes room for `more` elements of `size` bytes behind `used`, never beyond max.  Returns
 * false if there is none; m->rc is set then.
 */
static bool room_for(struct pickle_machine *m, void **array, uint32_t *room, uint32_t used,
		     uint32_t more, size_t size, uint32_t max)
{
	uint64_t wanted = (uint64_t)used + more;
	void *larger;

	if (wanted <= *room)
		return true;
	if (wanted > max) {
		pickle_machine_fail(m, -EFBIG, "too much in it");
		return false;
	}
	wanted = u64_min(max, u64_max(wanted, 2 * (uint64_t)*room + 64));
	larger = realloc(*array, wanted * size);
	if (!larger) {
		pickle_machine_fail(m, -ENOMEM, "no memory");
		return false;
	}
	*array = larger;
	*room = (uint32_t)wanted;
	return true;
}

/* ---- bytes ---- */

static void load(struct pickle_machine *m, uint64_t wanted)
{
	struct pickle *p = m->p;
	size_t size = (size_t)u64_min(p->blob.size,
				      u64_max(wanted, u64_max(LOAD_FIRST, 2 * p->loaded)));
	uint8_t *larger = realloc(p->data, size);

	if (!larger) {
		pickle_machine_fail(m, -ENOMEM, "no memory");
		return;
	}
	p->data = larger;
	m->rc = blob_read(&p->blob, p->loaded, p->data + p->loaded, size - p->loaded, m->error);
	if (!m->rc)
		p->loaded = size;
}

bool pickle_machine_need(struct pickle_machine *m, uint64_t n)
{
	if (n > m->p->blob.size - m->at)
		pickle_machine_fail(m, -EBADMSG,
				    "%" PRIu64 " bytes wanted, %" PRIu64 " are left", n,
				    m->p->blob.size - m->at);
	else if (!m->rc && m->at + n > m->p->loaded)
		load(m, m->at + n);
	return !m->rc;
}

bool pickle_machine_charge(struct pickle_machine *m, size_t n)
{
	m->copied += n;
	if (m->copied > 2 * m->at)
		pickle_machine_fail(m, -EFBIG, "the same is copied again and again");
	return !m->rc;
}

/* ---- nodes ---- */

uint32_t pickle_machine_node(struct pickle_machine *m, enum pickle_kind kind)
{
	struct pickle *p = m->p;

	if (m->rc || !room_for(m, (void **)&p->nodes, &p->nodes_room, p->nnodes, 1,
			       sizeof(*p->nodes), NODES_MAX))
		return PICKLE_NOTHING;
	p->nodes[p->nnodes] =
		(struct pickle_node){ .kind = (uint8_t)kind,
				      .hashable = kind != PICKLE_LIST && kind != PICKLE_DICT };
	return p->nnodes++;
}

uint32_t pickle_machine_int(struct pickle_machine *m, int64_t value)
{
	uint32_t node = pickle_machine_node(m, PICKLE_INT);

	if (node)
		pickle_machine_at(m, node)->integer = value;
	return node;
}

static uint32_t bytes_node(struct pickle_machine *m, enum pickle_kind kind, bool decoded,
			   size_t from, size_t n)
{
	uint32_t node;

	if (from + n > UINT32_MAX)
		pickle_machine_fail(m, -EFBIG, "more than 4 GiB");
	node = pickle_machine_node(m, kind);
	if (!node)
		return node;
	pickle_machine_at(m, node)->decoded = decoded;
	pickle_machine_at(m, node)->at = (uint32_t)from;
	pickle_machine_at(m, node)->count = (uint32_t)n;
	return node;
}

uint32_t pickle_machine_bytes(struct pickle_machine *m, enum pickle_kind kind, size_t from,
			      size_t n)
{
	return bytes_node(m, kind, false, from, n);
}

uint32_t pickle_machine_text(struct pickle_machine *m, size_t from, size_t n)
{
	if (!m->rc && !utf8_is_valid(m->p->data + from, n, true))
		pickle_machine_fail(m, -EBADMSG, "a text that is not UTF-8");
	return pickle_machine_bytes(m, PICKLE_TEXT, from, n);
}

uint8_t *pickle_machine_decode(struct pickle_machine *m, size_t n)
{
	struct pickle *p = m->p;
	uint8_t *larger;

	if (!pickle_machine_charge(m, n))
		return NULL;
	if (p->ndecoded + n > p->decoded_room || !p->decoded) {
		larger = realloc(p->decoded, 2 * (p->ndecoded + n) + 64);
		if (!larger) {
			pickle_machine_fail(m, -ENOMEM, "no memory");
			return NULL;
		}
		p->decoded = larger;
		p->decoded_room = 2 * (p->ndecoded + n) + 64;
	}
	return p->decoded + p->ndecoded;
}

uint32_t pickle_machine_decoded(struct pickle_machine *m, enum pickle_kind kind, size_t n)
{
	size_t from = m->p->ndecoded;

	m->p->ndecoded += n;
	return bytes_node(m, kind, true, from, n);
}

static bool word_room(struct pickle_machine *m, uint32_t n)
{
	struct pickle *p = m->p;

	return !m->rc && room_for(m, (void **)&p->words, &p->words_room, p->nwords, n,
				  sizeof(*p->words), WORDS_MAX);
}

uint32_t pickle_machine_words(struct pickle_machine *m, enum pickle_kind kind,
			      const uint32_t *words, uint32_t n)
{
	uint32_t node = word_room(m, n) ? pickle_machine_node(m, kind) : PICKLE_NOTHING;
	struct pickle *p = m->p;

	if (!node)
		return node;
	pickle_machine_at(m, node)->at = p->nwords;
	pickle_machine_at(m, node)->count = pickle_machine_at(m, node)->room = n;
	if (n)
		memcpy(p->words + p->nwords, words, n * sizeof(*words));
	p->nwords += n;
	return node;
}

/* Gives the node room for `more` words.  Its words move to the end of p->words, unless they are
 * there.
 */
static bool grow(struct pickle_machine *m, struct pickle_node *n, uint32_t more)
{
	struct pickle *p = m->p;

	if (n->at + n->room != p->nwords) {
		if (!word_room(m, n->count))
			return false;
		memcpy(p->words + p->nwords, p->words + n->at, n->count * sizeof(uint32_t));
		n->at = p->nwords;
		n->room = n->count;
		p->nwords += n->count;
	}
	if (!word_room(m, more))
		return false;
	p->nwords += more;
	n->room += more;
	return true;
}

void pickle_machine_append(struct pickle_machine *m, uint32_t node, const uint32_t *words,
			   uint32_t n)
{
	struct pickle_node *list = pickle_machine_at(m, node);

	if (m->rc || !n)
		return;
	if (list->room - list->count < n && !grow(m, list, (uint32_t)u64_max(n, list->count)))
		return;
	memcpy(m->p->words + list->at + list->count, words, n * sizeof(*words));
	list->count += n;
}

void pickle_machine_set(struct pickle_machine *m, uint32_t dict, const uint32_t *pairs,
			uint32_t n)
{
	for (uint32_t i = 0; i < n && !m->rc; i += 2)
		if (!pickle_machine_at(m, pairs[i])->hashable)
			pickle_machine_fail(m, -EBADMSG, "a list or dict as a key");
	pickle_machine_append(m, dict, pairs, n);
}

/* ---- the stack ---- */

void pickle_machine_push(struct pickle_machine *m, uint32_t node)
{
	if (!m->rc && room_for(m, (void **)&m->stack, &m->stack_room, m->nstack, 1,
			       sizeof(*m->stack), WORDS_MAX))
		m->stack[m->nstack++] = node;
}

uint32_t pickle_machine_top(struct pickle_machine *m)
{
	if (m->nstack <= (m->nmarks ? m->marks[m->nmarks - 1] : 0))
		pickle_machine_fail(m, -EBADMSG, "a value is missing");
	return m->rc ? PICKLE_NOTHING : m->stack[m->nstack - 1];
}

uint32_t pickle_machine_pop(struct pickle_machine *m)
{
	uint32_t node = pickle_machine_top(m);

	m->nstack -= !m->rc;
	return node;
}

/* ---- the memo ----
 *
 * Python numbers slots from 0 in the order in which it fills them, so a slot's number is less
 * than the bytes read so far, and m->memo no larger than the pickle.  A few larger numbers,
 * which only other writers use, go into m->far.
 */

static struct memo_far *find_far(struct pickle_machine *m, uint32_t slot)
{
	for (uint32_t i = 0; i < m->nfar; i++)
		if (m->far[i].slot == slot)
			return &m->far[i];
	return NULL;
}

static void put_far(struct pickle_machine *m, uint32_t slot, uint32_t node)
{
	struct memo_far *far = find_far(m, slot);

	if (!far && m->nfar == ARRAY_SIZE(m->far)) {
		pickle_machine_fail(m, -EFBIG, "memo slots far from each other");
		return;
	}
	if (!far) {
		far = &m->far[m->nfar++];
		m->memo_count++;
	}
	*far = (struct memo_far){ slot, node };
}

void pickle_machine_put(struct pickle_machine *m, uint64_t slot)
{
	uint32_t node = pickle_machine_top(m), old = m->memo_room;

	if (m->rc)
		return;
	if (slot >= m->at || slot >= WORDS_MAX || find_far(m, (uint32_t)slot)) {
		put_far(m, (uint32_t)slot, node);
		return;
	}
	if (!room_for(m, (void **)&m->memo, &m->memo_room, (uint32_t)slot, 1, sizeof(*m->memo),
		      WORDS_MAX))
		return;
	memset(m->memo + old, 0, (m->memo_room - old) * sizeof(*m->memo));
	m->memo_count += !m->memo[slot];
	m->memo[slot] = node;
}

void pickle_machine_get(struct pickle_machine *m, uint64_t slot)
{
	const struct memo_far *far = find_far(m, (uint32_t)slot);
	uint32_t node = far ? far->node : slot < m->memo_room ? m->memo[slot] : PICKLE_NOTHING;

	if (!node)
		pickle_machine_fail(m, -EBADMSG, "memo slot %u is empty", (uint32_t)slot);
	pickle_machine_push(m, node);
}

/* ---- numbers ---- */

bool pickle_machine_line(struct pickle_machine *m, size_t *from, size_t *size)
{
	struct pickle *p = m->p;
	const uint8_t *end = NULL;
	size_t seen = 0;

	while (pickle_machine_need(m, seen + 1)) {
		end = memchr(p->data + m->at + seen, '\n', p->loaded - m->at - seen);
		if (end)
			break;
		seen = p->loaded - m->at;
	}
	if (!end)
		return false;
	*from = m->at;
	*size = (size_t)(end - p->data) - m->at;
	m->at += *size + 1;
	return true;
}

uint32_t pickle_machine_little_endian(struct pickle_machine *m, size_t from, size_t n)
{
	const uint8_t *bytes = m->p->data + from;
	uint64_t value = 0;

	while (n > 1 && bytes[n - 1] == (bytes[n - 2] & 0x80 ? 0xff : 0))
		n--; /* the byte only repeats the sign */
	if (n > 8)
		return pickle_machine_bytes(m, PICKLE_BIG, from, n);
	if (n && bytes[n - 1] & 0x80)
		value = UINT64_MAX;
	for (size_t i = n; i--;)
		value = value << 8 | bytes[i];
	return pickle_machine_int(m, (int64_t)value);
}

static uint32_t decimal(struct pickle_machine *m, size_t from, size_t size)
{
	char text[NUMBER_MAX + 1], *end;
	int64_t value;

	for (size_t i = 0; i < size; i++) {
		uint8_t c = m->p->data[from + i];

		if (!(c >= '0' && c <= '9') && (i || c != '-' || size == 1))
			size = 0;
	}
	if (!size) {
		pickle_machine_fail(m, -EBADMSG, "not an integer");
		return PICKLE_NOTHING;
	}
	if (size > NUMBER_MAX)
		return pickle_machine_bytes(m, PICKLE_BIG, from, size);
	memcpy(text, m->p->data + from, size);
	text[size] = '\0';
	errno = 0;
	value = strtoll(text, &end, 10);
	return errno ? pickle_machine_bytes(m, PICKLE_BIG, from, size)
		     : pickle_machine_int(m, value);
}

/* Reads INT, whose "00" and "01" are False and True. */
uint32_t pickle_machine_read_integer(struct pickle_machine *m)
{
	size_t from, size;

	if (!pickle_machine_line(m, &from, &size))
		return PICKLE_NOTHING;
	if (size == 2 && m->p->data[from] == '0' && (m->p->data[from + 1] & 0xfe) == '0')
		return m->p->data[from + 1] == '1' ? NODE_TRUE : NODE_FALSE;
	return decimal(m, from, size);
}

uint32_t pickle_machine_read_long(struct pickle_machine *m)
{
	size_t from, size;

	if (!pickle_machine_line(m, &from, &size))
		return PICKLE_NOTHING;
	return decimal(m, from, size - (size && m->p->data[from + size - 1] == 'L'));
}

uint32_t pickle_machine_read_float(struct pickle_machine *m)
{
	char text[NUMBER_MAX + 1], *end = text;
	size_t from, size;
	double value = 0;
	uint32_t node;

	if (!pickle_machine_line(m, &from, &size))
		return PICKLE_NOTHING;
	if (size && size <= NUMBER_MAX && !memchr(m->p->data + from, '\0', size)) {
		memcpy(text, m->p->data + from, size);
		text[size] = '\0';
		value = strtod(text, &end);
	}
	if (end == text || *end)
		pickle_machine_fail(m, -EBADMSG, "not a number");
	node = pickle_machine_node(m, PICKLE_REAL);
	if (node)
		pickle_machine_at(m, node)->real = value;
	return node;
}

/* ---- texts with escapes ---- */

static bool take_hex(const uint8_t *in, size_t left, size_t digits, uint32_t *out)
{
	*out = 0;
	if (left < digits)
		return false;
	for (size_t i = 0; i < digits; i++) {
		int digit = hex_digit((char)in[i]);

		if (digit < 0)
			return false;
		*out = *out << 4 | (uint32_t)digit;
	}
	return true;
}

/* Appends the byte that an escape in a Python 2 string stands for; `in` is behind the
 * backslash.  Returns how many bytes the escape has there; 0: it is malformed.
 */
static size_t take_escape(const uint8_t *in, size_t left, uint8_t **out)
{
	static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
	const char *letter = left && *in ? strchr(letters, *in) : NULL;
	uint32_t code = 0;
	size_t n = 0;

	if (letter) {
		*(*out)++ = (uint8_t)values[letter - letters];
		return 1;
	}
	if (left && *in == 'x') {
		n = take_hex(in + 1, left - 1, 2, &code) ? 3 : 0;
	} else {
		while (n < 3 && n < left && in[n] >= '0' && in[n] <= '7')
			code = code << 3 | (in[n++] & 7u);
	}
	if (n)
		*(*out)++ = (uint8_t)code;
	return n;
}

static bool unescape(const uint8_t *in, size_t size, uint8_t **out)
{
	for (size_t n; size; in += n, size -= n) {
		if (*in != '\\') {
			*(*out)++ = *in;
			n = 1;
			continue;
		}
		n = take_escape(in + 1, size - 1, out);
		if (!n++)
			return false;
	}
	return true;
}

static uint32_t text_or_bytes(struct pickle_machine *m, const uint8_t *start, size_t n)
{
	return pickle_machine_decoded(
		m, utf8_is_valid(start, n, true) ? PICKLE_TEXT : PICKLE_BYTES, n);
}

/* Reads STRING, a quoted string as Python 2 prints it. */
uint32_t pickle_machine_read_string(struct pickle_machine *m)
{
	size_t from, size;
	uint8_t *start, *end, quote;
	const uint8_t *in;

	if (!pickle_machine_line(m, &from, &size) || !(start = pickle_machine_decode(m, size)))
		return PICKLE_NOTHING;
	in = m->p->data + from;
	quote = size >= 2 ? in[0] : 0;
	end = start;
	if ((quote != '\'' && quote != '"') || in[size - 1] != quote ||
	    !unescape(in + 1, size - 2, &end)) {
		pickle_machine_fail(m, -EBADMSG, "not a string");
		return PICKLE_NOTHING;
	}
	return text_or_bytes(m, start, (size_t)(end - start));
}

/* Reads UNICODE, Python's raw-unicode-escape: Latin-1, and \u with 4 digits, \U with 8. */
uint32_t pickle_machine_read_unicode(struct pickle_machine *m)
{
	size_t from, size;
	uint8_t *start, *end;
	uint32_t code;

	/* in UTF-8 a byte of Latin-1 has up to 2 bytes, \u and \U fewer than as escapes */
	if (!pickle_machine_line(m, &from, &size) ||
	    !(start = pickle_machine_decode(m, 2 * size)))
		return PICKLE_NOTHING;
	end = start;
	for (size_t i = 0, n; i < size; i += n) {
		const uint8_t *in = m->p->data + from + i;
		bool escape = in[0] == '\\' && i + 1 < size && (in[1] | 0x20) == 'u';

		n = !escape ? 1 : in[1] == 'u' ? 6 : 10;
		code = *in;
		if (escape &&
		    (!take_hex(in + 2, size - i - 2, n - 2, &code) || code > 0x10ffff))
			pickle_machine_fail(m, -EBADMSG, "not a text");
		if (m->rc)
			return PICKLE_NOTHING;
		end += utf8_put(code, end);
	}
	return text_or_bytes(m, start, (size_t)(end - start));
}
