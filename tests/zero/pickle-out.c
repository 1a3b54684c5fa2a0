/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/zero/torch-writer.h"

#include <stdio.h>
#include <string.h>

static void put(struct pickle_out *p, const void *bytes, size_t n)
{
	if (p->room - p->n < n) {
		p->room = p->room * 2 + n + 4096;
		p->bytes = realloc(p->bytes, p->room);
		if (!p->bytes)
			writer_fail("memory");
	}
	memcpy(p->bytes + p->n, bytes, n);
	p->n += n;
}

static void put_byte(struct pickle_out *p, unsigned byte)
{
	uint8_t b = (uint8_t)byte;

	put(p, &b, 1);
}

/* An op that has two forms: of a number below 256, and of others. */
static void put_number(struct pickle_out *p, char small, char large, uint32_t number)
{
	put_byte(p, (uint8_t)(number < 256 ? small : large));
	put(p, &number, number < 256 ? 1 : 4);
}

static uint32_t remember(struct pickle_out *p)
{
	put_number(p, 'q', 'r', p->memo);
	return p->memo++;
}

void out_op(struct pickle_out *p, const char *ops)
{
	put(p, ops, strlen(ops));
}

void out_int(struct pickle_out *p, uint64_t value)
{
	if (value < 256) {
		put_byte(p, 'K');
		put(p, &value, 1);
	} else if (value < 65536) {
		put_byte(p, 'M');
		put(p, &value, 2);
	} else if (value <= INT32_MAX) {
		put_byte(p, 'J');
		put(p, &value, 4);
	} else {
		put(p, "\x8a\x08", 2);
		put(p, &value, 8);
	}
}

void out_float(struct pickle_out *p, double value)
{
	uint64_t bits;

	memcpy(&bits, &value, 8);
	bits = __builtin_bswap64(bits);
	put_byte(p, 'G');
	put(p, &bits, 8);
}

void out_text(struct pickle_out *p, const char *text)
{
	uint32_t n = (uint32_t)strlen(text);

	put_byte(p, 'X');
	put(p, &n, 4);
	put(p, text, n);
	remember(p);
}

void out_global(struct pickle_out *p, const char *name)
{
	for (unsigned i = 0; i < p->nglobals; i++)
		if (!strcmp(p->globals[i].name, name)) {
			put_number(p, 'h', 'j', p->globals[i].memo);
			return;
		}
	assert(p->nglobals < ARRAY_SIZE(p->globals));
	put_byte(p, 'c');
	put(p, name, strlen(name));
	snprintf(p->globals[p->nglobals].name, sizeof(p->globals[0].name), "%s", name);
	p->globals[p->nglobals++].memo = remember(p);
}

void out_ordered(struct pickle_out *p)
{
	out_global(p, "collections\nOrderedDict\n");
	out_op(p, ")R");
	remember(p);
}

static void put_tuple(struct pickle_out *p, const uint64_t *item, unsigned n)
{
	out_op(p, n ? "(" : ")");
	for (unsigned i = 0; i < n; i++)
		out_int(p, item[i]);
	if (n) {
		out_op(p, "t");
		remember(p);
	}
}

void out_size(struct pickle_out *p, const uint64_t *shape, unsigned ndim)
{
	out_global(p, "torch\nSize\n");
	put_tuple(p, shape, ndim);
	out_op(p, "\x85R");
	remember(p);
}

static void put_storage(struct pickle_out *p, const struct tensor_out *t)
{
	char text[64];

	out_op(p, "(");
	out_text(p, "storage");
	snprintf(text, sizeof(text), "torch\n%sStorage\n", t->type);
	out_global(p, text);
	snprintf(text, sizeof(text), "%u", t->storage);
	out_text(p, text);
	out_text(p, "cpu");
	out_int(p, t->storage_numel);
	out_op(p, "tQ");
}

void out_tensor(struct pickle_out *p, const struct tensor_out *t)
{
	uint64_t stride[8], step = 1;

	assert(t->ndim <= ARRAY_SIZE(stride));
	for (unsigned i = t->ndim; i--; step *= t->shape[i])
		stride[i] = step;
	out_global(p, "torch._utils\n_rebuild_tensor_v2\n");
	out_op(p, "(");
	put_storage(p, t);
	out_int(p, t->offset);
	put_tuple(p, t->shape, t->ndim);
	put_tuple(p, stride, t->ndim);
	out_op(p, "\x89");
	out_ordered(p);
	out_op(p, "tR");
	remember(p);
}
