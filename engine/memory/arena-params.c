/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/memory/arena-internal.h"

#include <errno.h>

static uint32_t head_of(const struct arena_params *p, uint64_t param)
{
	return (uint32_t)(param * 0x9e3779b97f4a7c15u >> 32) & (p->nheads - 1);
}

static uint32_t find_param(const struct arena_params *p, uint64_t param)
{
	uint32_t at = p->nheads ? p->heads[head_of(p, param)] : ARENA_NONE;

	while (at != ARENA_NONE && p->all[at].param != param)
		at = p->all[at].chain;
	return at;
}

/* ---- as many heads as parameters, at least ---- */

static void chain_in(struct arena_params *p, uint32_t at)
{
	uint32_t *head = &p->heads[head_of(p, p->all[at].param)];

	p->all[at].chain = *head;
	*head = at;
}

static int grow(struct arena_params *p)
{
	uint32_t n = p->allocated ? p->allocated * 2 : 64;
	struct arena_param *all;
	uint32_t *heads;

	if (n < p->allocated || !(all = realloc(p->all, n * sizeof(*all))))
		return -ENOMEM;
	p->all = all;
	if (!(heads = realloc(p->heads, n * sizeof(*heads))))
		return -ENOMEM;
	p->heads = heads;
	p->allocated = p->nheads = n;
	for (uint32_t i = 0; i < n; i++)
		heads[i] = ARENA_NONE;
	for (uint32_t i = 0; i < p->top; i++)
		chain_in(p, i);
	return 0;
}

/* Takes an unused record, or a new one where every record is in use. */
static int new_param(struct arena_params *p, uint32_t *at)
{
	if (!p->allocated)
		p->unused = ARENA_NONE;
	if (p->unused == ARENA_NONE) {
		if (p->top == p->allocated && grow(p))
			return -ENOMEM;
		*at = p->top++;
	} else {
		*at = p->unused;
		p->unused = p->all[*at].chain;
	}
	p->count++;
	return 0;
}

int arena_assign(struct arena *a, uint64_t param, uint64_t handle, uint64_t offset,
		 uint64_t size)
{
	struct arena_params *p = &a->params;
	uint32_t block = arena_block_of(a, handle), at, next;

	if (block == ARENA_NONE)
		return -ENOENT;
	if (offset > a->blocks[block].size || size > a->blocks[block].size - offset)
		return -EINVAL;
	if (find_param(p, param) != ARENA_NONE)
		return -EEXIST;
	if (new_param(p, &at))
		return -ENOMEM;
	next = a->blocks[block].params;
	p->all[at] = (struct arena_param){ .param = param,
					   .offset = offset,
					   .size = size,
					   .block = block,
					   .sibling = next,
					   .prev = ARENA_NONE };
	if (next != ARENA_NONE)
		p->all[next].prev = at;
	a->blocks[block].params = at;
	chain_in(p, at);
	return 0;
}

static void chain_out(struct arena_params *p, uint32_t at)
{
	uint32_t *link = &p->heads[head_of(p, p->all[at].param)];

	while (*link != at)
		link = &p->all[*link].chain;
	*link = p->all[at].chain;
	p->all[at].chain = p->unused;
	p->unused = at;
	p->count--;
}

int arena_unassign(struct arena *a, uint64_t param)
{
	struct arena_params *p = &a->params;
	uint32_t at = find_param(p, param), next, prev;

	if (at == ARENA_NONE)
		return -ENOENT;
	next = p->all[at].sibling;
	prev = p->all[at].prev;
	if (prev == ARENA_NONE)
		a->blocks[p->all[at].block].params = next;
	else
		p->all[prev].sibling = next;
	if (next != ARENA_NONE)
		p->all[next].prev = prev;
	chain_out(p, at);
	return 0;
}

void arena_params_forget(struct arena *a, uint32_t block)
{
	uint32_t at = a->blocks[block].params;

	for (; at != ARENA_NONE; at = a->params.all[at].sibling)
		chain_out(&a->params, at);
	a->blocks[block].params = ARENA_NONE;
}

int arena_param(const struct arena *a, uint64_t param, uint64_t *block, uint64_t *offset,
		uint64_t *size)
{
	uint32_t at = find_param(&a->params, param);

	if (at == ARENA_NONE)
		return -ENOENT;
	*block = arena_handle_of(a, a->params.all[at].block);
	*offset = a->params.all[at].offset;
	*size = a->params.all[at].size;
	return 0;
}

bool arena_param_of(const struct arena *a, uint64_t handle, uint32_t *cursor, uint64_t *param)
{
	uint32_t block = arena_block_of(a, handle), at;

	if (block == ARENA_NONE)
		return false;
	at = *cursor ? a->params.all[*cursor - 1].sibling : a->blocks[block].params;
	if (at == ARENA_NONE)
		return false;
	*cursor = at + 1;
	*param = a->params.all[at].param;
	return true;
}

void arena_params_fini(struct arena *a)
{
	free(a->params.all);
	free(a->params.heads);
}
