/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/base/thread.h"
#include "engine/catalog/leaves.h"
#include "engine/live/live.h"
#include "engine/read/cut-reads.h"

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

/* Opens a state of all parameters of the leaf as one file. */
static int open_leaf(struct frag *f, int param, const char *key, struct engine_file **file,
		     uint64_t *bytes)
{
	int n = frag_leaf_params(f, param, NULL, 0), rc = 0;
	CLEANUP(free) struct engine_address *addresses = NULL;
	uint32_t member = (uint32_t)param;

	if (n <= 0)
		return n ? n : -ENOENT;
	addresses = calloc((size_t)n, sizeof(*addresses));
	if (!addresses)
		return -ENOMEM;
	for (int i = 0; i < n && !rc; i++) {
		rc = api_address_of(f, (int)member, key, &addresses[i]);
		member = leaves_next(f->engine->leaves, member);
	}
	return rc ? rc : live_file_open(f->engine, addresses, (uint32_t)n, file, bytes);
}

int64_t frag_leaf_get_bytes(struct frag *f, int param, const char *key)
{
	struct engine_file *file;
	uint64_t bytes;
	int rc = open_leaf(f, param, key, &file, &bytes);

	if (rc)
		return rc;
	live_file_close(file);
	return (int64_t)bytes;
}

int frag_leaf_get(struct frag *f, int param, const char *key, void *out, uint64_t bytes)
{
	struct engine_file *file;
	uint64_t size;
	int rc = open_leaf(f, param, key, &file, &size);

	if (rc)
		return rc;
	rc = size == bytes && out ? cut_reads_get_file(file, out) : -EINVAL;
	live_file_close(file);
	return rc;
}
