/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/pickle-machine.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LOAD_FIRST = 16384 };

void machine_fail(struct machine *m, int rc, const char *fmt, ...)
{
	char why[120];
	va_list args;

	if (m->rc)
		return;
	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	m->rc = parse_fail(m->error, rc, "pickle before byte %" PRIu64 ": %s",
			   m->p->blob.start + m->at, why);
}

bool machine_room(struct machine *m, void **array, uint32_t *room, uint32_t used, uint32_t more,
		  size_t size, uint32_t max)
{
	uint64_t wanted = (uint64_t)used + more;
	void *larger;

	if (wanted <= *room)
		return true;
	if (wanted > max) {
		machine_fail(m, -EFBIG, "too much in it");
		return false;
	}
	wanted = u64_min(max, u64_max(wanted, 2 * (uint64_t)*room + 64));
	larger = realloc(*array, wanted * size);
	if (!larger) {
		machine_fail(m, -ENOMEM, "no memory");
		return false;
	}
	*array = larger;
	*room = (uint32_t)wanted;
	return true;
}

/* ---- bytes ---- */

static void load(struct machine *m, uint64_t wanted)
{
	struct pickle *p = m->p;
	size_t size = (size_t)u64_min(p->blob.size,
				      u64_max(wanted, u64_max(LOAD_FIRST, 2 * p->loaded)));
	uint8_t *larger = realloc(p->data, size);

	if (!larger) {
		machine_fail(m, -ENOMEM, "no memory");
		return;
	}
	p->data = larger;
	m->rc = blob_read(&p->blob, p->loaded, p->data + p->loaded, size - p->loaded, m->error);
	if (!m->rc)
		p->loaded = size;
}

bool machine_need(struct machine *m, uint64_t n)
{
	if (n > m->p->blob.size - m->at)
		machine_fail(m, -EBADMSG, "%" PRIu64 " bytes wanted, %" PRIu64 " are left", n,
			     m->p->blob.size - m->at);
	else if (!m->rc && m->at + n > m->p->loaded)
		load(m, m->at + n);
	return !m->rc;
}

bool machine_charge(struct machine *m, size_t n)
{
	m->copied += n;
	if (m->copied > 2 * m->at)
		machine_fail(m, -EFBIG, "the same is copied again and again");
	return !m->rc;
}

const uint8_t *pickle_bytes_of(const struct pickle *p, const struct pickle_node *n)
{
	return (n->decoded ? p->decoded : p->data) + n->at;
}

/* ---- nodes ---- */

uint32_t machine_node(struct machine *m, enum pickle_kind kind)
{
	struct pickle *p = m->p;

	if (m->rc || !machine_room(m, (void **)&p->nodes, &p->nodes_room, p->nnodes, 1,
				   sizeof(*p->nodes), NODES_MAX))
		return PICKLE_NOTHING;
	p->nodes[p->nnodes] =
		(struct pickle_node){ .kind = (uint8_t)kind,
				      .hashable = kind != PICKLE_LIST && kind != PICKLE_DICT };
	return p->nnodes++;
}

uint32_t machine_int(struct machine *m, int64_t value)
{
	uint32_t node = machine_node(m, PICKLE_INT);

	if (node)
		machine_at(m, node)->integer = value;
	return node;
}

static uint32_t bytes_node(struct machine *m, enum pickle_kind kind, bool decoded, size_t from,
			   size_t n)
{
	uint32_t node;

	if (from + n > UINT32_MAX)
		machine_fail(m, -EFBIG, "more than 4 GiB");
	node = machine_node(m, kind);
	if (!node)
		return node;
	machine_at(m, node)->decoded = decoded;
	machine_at(m, node)->at = (uint32_t)from;
	machine_at(m, node)->count = (uint32_t)n;
	return node;
}

uint32_t machine_bytes(struct machine *m, enum pickle_kind kind, size_t from, size_t n)
{
	return bytes_node(m, kind, false, from, n);
}

uint32_t machine_text(struct machine *m, size_t from, size_t n)
{
	if (!m->rc && !utf8_is_valid(m->p->data + from, n, true))
		machine_fail(m, -EBADMSG, "a text that is not UTF-8");
	return machine_bytes(m, PICKLE_TEXT, from, n);
}

uint8_t *machine_decode(struct machine *m, size_t n)
{
	struct pickle *p = m->p;
	uint8_t *larger;

	if (!machine_charge(m, n))
		return NULL;
	if (p->ndecoded + n > p->decoded_room || !p->decoded) {
		larger = realloc(p->decoded, 2 * (p->ndecoded + n) + 64);
		if (!larger) {
			machine_fail(m, -ENOMEM, "no memory");
			return NULL;
		}
		p->decoded = larger;
		p->decoded_room = 2 * (p->ndecoded + n) + 64;
	}
	return p->decoded + p->ndecoded;
}

uint32_t machine_decoded(struct machine *m, enum pickle_kind kind, size_t n)
{
	size_t from = m->p->ndecoded;

	m->p->ndecoded += n;
	return bytes_node(m, kind, true, from, n);
}

static bool word_room(struct machine *m, uint32_t n)
{
	struct pickle *p = m->p;

	return !m->rc && machine_room(m, (void **)&p->words, &p->words_room, p->nwords, n,
				      sizeof(*p->words), WORDS_MAX);
}

uint32_t machine_words(struct machine *m, enum pickle_kind kind, const uint32_t *words,
		       uint32_t n)
{
	uint32_t node = word_room(m, n) ? machine_node(m, kind) : PICKLE_NOTHING;
	struct pickle *p = m->p;

	if (!node)
		return node;
	machine_at(m, node)->at = p->nwords;
	machine_at(m, node)->count = machine_at(m, node)->room = n;
	if (n)
		memcpy(p->words + p->nwords, words, n * sizeof(*words));
	p->nwords += n;
	return node;
}

/* At the end of all words it grows in place, else it moves there. */
static bool grow(struct machine *m, struct pickle_node *n, uint32_t more)
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

void machine_append(struct machine *m, uint32_t node, const uint32_t *words, uint32_t n)
{
	struct pickle_node *list = machine_at(m, node);

	if (m->rc || !n)
		return;
	if (list->room - list->count < n && !grow(m, list, (uint32_t)u64_max(n, list->count)))
		return;
	memcpy(m->p->words + list->at + list->count, words, n * sizeof(*words));
	list->count += n;
}

void machine_set(struct machine *m, uint32_t dict, const uint32_t *pairs, uint32_t n)
{
	for (uint32_t i = 0; i < n && !m->rc; i += 2)
		if (!machine_at(m, pairs[i])->hashable)
			machine_fail(m, -EBADMSG, "a list or dict as a key");
	machine_append(m, dict, pairs, n);
}

/* ---- the stack ---- */

void machine_push(struct machine *m, uint32_t node)
{
	if (!m->rc && machine_room(m, (void **)&m->stack, &m->stack_room, m->nstack, 1,
				   sizeof(*m->stack), WORDS_MAX))
		m->stack[m->nstack++] = node;
}

uint32_t machine_top(struct machine *m)
{
	if (m->nstack <= (m->nmarks ? m->marks[m->nmarks - 1] : 0))
		machine_fail(m, -EBADMSG, "a value is missing");
	return m->rc ? PICKLE_NOTHING : m->stack[m->nstack - 1];
}

uint32_t machine_pop(struct machine *m)
{
	uint32_t node = machine_top(m);

	m->nstack -= !m->rc;
	return node;
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
	make_fixed(m);
	while (!m->rc && !m->stopped)
		machine_step(m);
	if (m->rc)
		return;
	m->p->root = machine_pop(m);
	if (m->nstack || m->nmarks)
		machine_fail(m, -EBADMSG, "values are left over");
	m->p->size = m->at;
	if (!m->rc)
		machine_seal(m);
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
