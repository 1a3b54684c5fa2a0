/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/base/thread.h"
#include "engine/catalog/leaves.h"

#include <errno.h>

int frag_leaf(struct frag *f, enum frag_leaf_match match, const char *modules, int on)
{
	struct engine *e = api_engine(f);

	if (!e || !modules || !*modules || match > FRAG_LEAF_GLOB)
		return -EINVAL;
	LOCKED(&e->lock);
	if (!e->leaves)
		e->leaves = calloc(1, sizeof(*e->leaves));
	return e->leaves ? leaves_mark(e->leaves, e->own, match, modules, on) : -ENOMEM;
}

int frag_leaf_params(struct frag *f, int param, int *params, int max)
{
	struct engine *e = api_engine(f);
	uint32_t next = (uint32_t)param;
	int n = 0;

	if (!e || param < 0 || next >= e->own->nparams || (max > 0 && !params))
		return -EINVAL;
	if (!e->leaves || leaves_next(e->leaves, next) == LEAVES_NONE)
		return 0;
	do {
		if (n < max)
			params[n] = (int)next;
		n++;
		next = leaves_next(e->leaves, next);
	} while (next != (uint32_t)param);
	return n;
}
