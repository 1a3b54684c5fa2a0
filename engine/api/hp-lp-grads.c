/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/base/dtype.h"
#include "engine/live/live.h"
#include "engine/read/cut-reads.h"

#include <errno.h>

/* Many full gradients, changed together: all are read, then all are written in one transaction.
 */

struct grad {
	int param;
	uint64_t numel;
	void *raw;    /* the gradient in the holders' dtype */
	float *value; /* raw, where that is float32 */
	struct engine_extent extent;
};

struct grads {
	struct grad *grads;
	/* writes[i] is of grads[i]; the first `opened` have an open file */
	struct engine_write *writes;
	size_t n, opened;
};

static int check_params(const struct engine *e, const int *params, size_t n)
{
	CLEANUP(free) uint8_t *seen = calloc(e->own->nparams + 1, 1);

	if (!seen)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if (params[i] < 0 || (uint32_t)params[i] >= e->own->nparams || seen[params[i]])
			return -EINVAL;
		seen[params[i]] = 1;
	}
	return 0;
}

static int widen(struct grad *g, enum frag_dtype dtype)
{
	if (dtype == FRAG_F32) {
		g->value = g->raw;
		return 0;
	}
	g->value = malloc(g->numel * sizeof(float) + 1);
	return g->value ? dtype_convert(FRAG_F32, g->value, dtype, g->raw, g->numel) : -ENOMEM;
}

static int load(struct frag *f, struct grads *s, int param)
{
	struct grad *g = &s->grads[s->opened];
	struct engine_write *w = &s->writes[s->opened];
	struct engine_address a;
	uint64_t bytes;
	int rc = api_address_of(f, param, "grad", &a);

	if (!rc)
		rc = live_file_open(f->engine, &a, 1, &w->file, &bytes);
	if (rc)
		return rc;
	s->opened++;
	g->param = param;
	g->numel = f->engine->own->params[param].numel;
	g->raw = malloc(bytes + 1);
	if (!g->raw)
		return -ENOMEM;
	g->extent = (struct engine_extent){ 0, bytes, g->raw };
	w->extents = &g->extent;
	w->nextents = 1;
	rc = cut_reads_get(f->engine, &a, 0, g->raw, bytes);
	return rc ? rc : widen(g, w->file->parts->dtype);
}

static void unload(struct grads *s)
{
	for (size_t i = 0; i < s->opened; i++) {
		if (s->grads[i].value != s->grads[i].raw)
			free(s->grads[i].value);
		free(s->grads[i].raw);
		live_file_close(s->writes[i].file);
	}
	free(s->grads);
	free(s->writes);
}

static void change(struct grads *s, frag_grad_update update, void *arg)
{
	for (size_t i = 0; i < s->n; i++) {
		struct grad *g = &s->grads[i];

		update(arg, g->param, g->value, g->numel);
		if (g->value != g->raw)
			dtype_convert(s->writes[i].file->parts->dtype, g->raw, FRAG_F32,
				      g->value, g->numel);
	}
}

static int load_all(struct frag *f, struct grads *s, const int *params)
{
	int rc = 0;

	s->grads = calloc(s->n, sizeof(*s->grads));
	s->writes = calloc(s->n, sizeof(*s->writes));
	if (!s->grads || !s->writes)
		return -ENOMEM;
	for (size_t i = 0; i < s->n && !rc; i++)
		rc = load(f, s, params[i]);
	return rc;
}

int frag_update_grads(struct frag *f, const int *params, size_t n, frag_grad_update update,
		      void *arg)
{
	struct engine *e = api_engine(f);
	struct grads s = { .n = n };
	int rc;

	if (!e || !update || (n && !params))
		return -EINVAL;
	rc = check_params(e, params, n);
	if (rc || !n)
		return rc;
	if (!api_grads_are_valid(e))
		return -ENODATA;
	rc = load_all(f, &s, params);
	if (!rc) {
		change(&s, update, arg);
		rc = api_write(f, s.writes, n);
	}
	unload(&s);
	return rc;
}
