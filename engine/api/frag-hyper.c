/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"

#include <errno.h>
#include <string.h>

/* Hyper-parameters with a function that is called when they were edited.  Readers read, and
 * edits change, a registered double: the library's, filled by `get`, or the trainer's.  Its
 * value before a boundary is compared with that after it.
 */

struct hyper_calls {
	SLIST_ENTRY(hyper_calls) next;
	double own;    /* the value where get is not NULL */
	double *value; /* registered */
	double seen;   /* *value before the boundary */
	frag_hyper_get get;
	frag_hyper_set set;
	void *arg;
};

int frag_hyper_calls(struct frag *f, int group, const char *name, frag_hyper_get get,
		     frag_hyper_set set, void *arg)
{
	struct hyper_calls *h;
	int rc;

	if (!api_engine(f) || !set || (!get && !arg))
		return -EINVAL;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	*h = (struct hyper_calls){ .get = get, .set = set, .arg = arg };
	h->value = get ? &h->own : arg;
	if (get)
		h->own = get(arg);
	h->seen = *h->value;
	rc = frag_hyper(f, group, name, h->value);
	if (rc)
		free(h);
	else
		SLIST_INSERT_HEAD(&f->trainer.hypers, h, next);
	return rc;
}

void api_hypers_get(struct engine *e)
{
	struct hyper_calls *h;

	SLIST_FOREACH (h, &e->trainer->hypers, next) {
		if (h->get)
			h->own = h->get(h->arg);
		h->seen = *h->value;
	}
}

void api_hypers_set(struct engine *e)
{
	struct hyper_calls *h;

	SLIST_FOREACH (h, &e->trainer->hypers, next) {
		if (!memcmp(h->value, &h->seen, sizeof(h->seen))) /* by bytes: NaN != NaN */
			continue;
		h->seen = *h->value;
		h->set(h->arg, h->seen);
	}
}

void api_hypers_free(struct frag *f)
{
	struct hyper_calls *h;

	while ((h = SLIST_FIRST(&f->trainer.hypers))) {
		SLIST_REMOVE_HEAD(&f->trainer.hypers, next);
		free(h);
	}
}
