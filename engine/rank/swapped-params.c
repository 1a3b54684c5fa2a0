/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/rank/swapped-params-internal.h"

#include <errno.h>
#include <inttypes.h>

enum { WAIT_MS = 120000 }; /* the longest wait for buffers that are being written */

static struct swapped_param *shard_of(const struct swapped_params *s, int param)
{
	if (param < 0 || (uint32_t)param >= s->n || !s->shards[param].known)
		return NULL;
	return &s->shards[param];
}

bool swapped_params_has(const struct swapped_params *s, int param)
{
	return shard_of(s, param);
}

static bool has_all(const struct swapped_params *s, const int *params, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!shard_of(s, params[i]))
			return false;
	return true;
}

/* ---- packs: in, and out again ---- */

static int bring(struct swapped_params *s, struct pack *p, uint64_t wait_ms)
{
	int rc = swapper_swap_in_all(s->swapper, p->state, SWAPPER_READ | SWAPPER_WRITE,
				     wait_ms, p->lent);

	if (!rc)
		p->where = PACK_IN;
	return rc;
}

static void give_back(struct swapped_params *s, struct pack *p)
{
	for (unsigned i = 0; i < p->n; i++) {
		if (p->lent[i])
			swapper_return(s->swapper, p->lent[i]);
		p->lent[i] = NULL;
	}
	p->where = PACK_OUT;
	p->memory = NULL;
	p->changed = p->forgets = p->unshown = false;
}

/* Writes the pack's slices.  After an error the next call goes on with the slice that failed.
 */
static int send(struct swapped_params *s, struct pack *p)
{
	int rc = 0;

	for (unsigned i = 0; i < p->n && !rc; i++) {
		rc = p->lent[i] ? swapper_swap_out(s->swapper, p->lent[i]) : 0;
		if (!rc)
			p->lent[i] = NULL;
	}
	s->unsent += (rc != 0) - (p->where == PACK_UNSENT);
	p->where = rc ? PACK_UNSENT : PACK_OUT;
	if (!rc)
		give_back(s, p);
	return rc;
}

int swapped_params_settle(struct swapped_params *s)
{
	struct pack *p;
	int rc = 0;

	if (!s->unsent)
		return 0;
	TAILQ_FOREACH (p, &s->packs, link)
		if (p->where == PACK_UNSENT) {
			int one = send(s, p);

			rc = rc ? rc : one;
		}
	return rc;
}

bool swapped_params_make_room(struct swapped_params *s)
{
	bool made = s->idle > 0;
	struct pack *p;

	if (!made)
		return false;
	TAILQ_FOREACH (p, &s->packs, link)
		if (p->where == PACK_IN && !p->users)
			give_back(s, p);
	s->idle = 0;
	return made;
}

void swapped_params_leave(struct swapped_params *s)
{
	struct pack *p;

	if (!s)
		return;
	swapped_params_settle(s);
	while ((p = TAILQ_FIRST(&s->packs))) {
		TAILQ_REMOVE(&s->packs, p, link);
		give_back(s, p);
		free(p);
	}
}

/* ---- ahead ---- */

int swapped_params_ahead(struct swapped_params *s, const int *params, size_t n)
{
	int rc = has_all(s, params, n) ? 0 : -ENOENT;
	size_t i = 0;

	for (; i < n && !rc; i++) {
		struct pack *p = shard_of(s, params[i])->pack;

		if (!p || p->where == PACK_IN)
			continue;
		if (p->where == PACK_UNSENT || bring(s, p, 0))
			break;
		s->idle++;
	}
	return rc ? rc : (int)i;
}

/* ---- in ---- */

static void use(struct swapped_params *s, struct swapped_param *shard)
{
	shard->in++;
	if (!shard->pack)
		return;
	s->idle -= shard->pack->where == PACK_IN && !shard->pack->users;
	shard->pack->users++;
}

/* Undoes use: bringing the piece in has failed. */
static void unuse(struct swapped_params *s, struct swapped_param *shard)
{
	shard->in--;
	if (shard->pack && !--shard->pack->users && shard->pack->where == PACK_IN)
		give_back(s, shard->pack);
}

static unsigned missing(const struct swapped_params *s, const int *params, size_t n)
{
	unsigned buffers = 0;
	struct pack *last = NULL; /* the pieces of a pack follow each other, as a rule */

	for (size_t i = 0; i < n; i++) {
		struct pack *p = shard_of(s, params[i])->pack;

		buffers += p && p != last && p->where != PACK_IN ? p->n : 0;
		last = p;
	}
	return buffers;
}

static void say_missing(struct swapped_params *s, const int *params, size_t n)
{
	unsigned buffers = missing(s, params, n);
	struct swapper_figures f;

	if (buffers <= s->said)
		return;
	s->said = buffers;
	swapper_figures(s->swapper, &f);
	log_warn("swap: parameters need %u buffers of %" PRIu64
		 " bytes more, one behind the other where a piece is larger; of %u there are "
		 "%u lent: "
		 "raise FRAG_PINNED_MEM, or take fewer in at once",
		 buffers, s->buffer, f.pinned.count, f.pinned.lent);
}

static int bring_all(struct swapped_params *s, const int *params, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		struct pack *p = shard_of(s, params[i])->pack;

		if (!p || p->where == PACK_IN)
			continue;
		rc = p->where == PACK_UNSENT ? send(s, p) : 0;
		if (!rc)
			rc = bring(s, p, WAIT_MS);
		if (rc == -ENOBUFS && swapped_params_make_room(s))
			rc = bring(s, p, WAIT_MS);
	}
	return rc;
}

static int wait_for(struct swapped_params *s, struct pack *p)
{
	void *memory;
	int rc = 0;

	for (unsigned i = 0; i < p->n && !rc; i++) {
		rc = swapper_wait(s->swapper, p->lent[i], &memory);
		if (!rc && !i)
			p->memory = memory;
	}
	return rc;
}

static int find_memory(struct swapped_params *s, int param, void **memory)
{
	const struct swapped_param *shard = shard_of(s, param);
	enum frag_dtype dtype;
	int rc = shard->pack ? wait_for(s, shard->pack) : 0;

	if (rc)
		return rc;
	if (shard->pack) {
		*memory = shard->pack->memory + shard->at;
		return 0;
	}
	*memory = registry_memory(s->registry, STATE_LP_SHARD, (uint32_t)param, 0, "", 0,
				  shard->numel, &dtype);
	return *memory || !shard->numel ? 0 : -EAGAIN;
}

static int bring_and_wait(struct swapped_params *s, const int *params, size_t n, void **memory)
{
	int rc = bring_all(s, params, n);

	if (rc == -ENOBUFS)
		say_missing(s, params, n);
	for (size_t i = 0; i < n && !rc; i++)
		rc = find_memory(s, params[i], &memory[i]);
	return rc;
}

int swapped_params_in(struct swapped_params *s, const int *params, size_t n, void **memory)
{
	int rc;

	if (!has_all(s, params, n))
		return -ENOENT;
	swapped_params_settle(s); /* an error there does not keep other packs from coming in */
	for (size_t i = 0; i < n; i++)
		use(s, shard_of(s, params[i]));
	rc = bring_and_wait(s, params, n, memory);
	for (size_t i = 0; i < n && rc; i++)
		unuse(s, shard_of(s, params[i]));
	return rc;
}

/* ---- a look at one piece after the other ---- */

/* Gives back the buffers of a pack that is in and has no users. */
static void send_away(struct swapped_params *s, struct pack *p)
{
	if (!p || p->where != PACK_IN || p->users)
		return;
	s->idle--;
	give_back(s, p);
}

static bool bring_idle(struct swapped_params *s, struct pack *p, uint64_t wait_ms)
{
	if (p->where == PACK_IN)
		return true;
	if (p->where == PACK_UNSENT || bring(s, p, wait_ms))
		return false;
	s->idle++;
	return true;
}

/* Brings in the packs after p, all in `buffers` buffers at most.  The caller needs the rest for
 * what it makes of the pieces.
 */
static void read_ahead(struct swapped_params *s, const struct pack *p, unsigned buffers)
{
	unsigned taken = p->n;

	for (struct pack *next = TAILQ_NEXT(p, link); next; next = TAILQ_NEXT(next, link)) {
		taken += next->n;
		if (taken > buffers || !bring_idle(s, next, 0))
			break;
	}
}

const void *swapped_params_look(struct swapped_params *s, int param)
{
	const struct swapped_param *shard = shard_of(s, param);
	struct pack *p = shard ? shard->pack : NULL;
	struct swapper_figures f;

	if (!p || p->users)
		return NULL;
	if (s->looked_at != p)
		send_away(s, s->looked_at);
	s->looked_at = p;
	swapper_figures(s->swapper, &f);
	if (p->n > f.pinned.count / 2 || !bring_idle(s, p, WAIT_MS))
		return NULL;
	read_ahead(s, p, f.pinned.count / 2);
	if (wait_for(s, p)) {
		send_away(s, p);
		return NULL;
	}
	return p->memory + shard->at;
}

/* ---- out ---- */

/* Counts all params out, or none of them. */
static int take_out(struct swapped_params *s, const int *params, size_t n)
{
	size_t i = 0;

	while (i < n && shard_of(s, params[i])->in) {
		shard_of(s, params[i])->in--;
		i++;
	}
	if (i == n)
		return 0;
	while (i-- > 0)
		shard_of(s, params[i])->in++;
	return -EINVAL;
}

/* Writes one changed piece of a pack that is not written as a whole, since the pack stays in
 * for other pieces, or another piece of it was let out as unchanged.
 */
static int show_piece(struct swapped_params *s, const struct swapped_param *shard)
{
	struct pack *p = shard->pack;
	int rc;

	if (!p || p->where != PACK_IN || !(p->users || p->forgets))
		return 0;
	rc = swapper_write(s->swapper, p->state, shard->at, p->memory + shard->at,
			   shard->bytes);
	p->unshown |= rc != 0;
	return rc;
}

static int leave(struct swapped_params *s, struct pack *p)
{
	if (!p || p->where != PACK_IN || p->users)
		return 0;
	if (p->changed && (!p->forgets || p->unshown))
		return send(s, p);
	give_back(s, p);
	return 0;
}

int swapped_params_out(struct swapped_params *s, const int *params, size_t n, bool changed)
{
	int rc = has_all(s, params, n) ? take_out(s, params, n) : -ENOENT, first = rc;

	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++) {
		struct pack *p = shard_of(s, params[i])->pack;

		if (!p)
			continue;
		p->users--;
		p->changed |= changed;
		p->forgets |= !changed;
	}
	for (size_t i = 0; i < n && changed; i++) {
		rc = show_piece(s, shard_of(s, params[i]));
		first = first ? first : rc;
	}
	for (size_t i = 0; i < n; i++) {
		rc = leave(s, shard_of(s, params[i])->pack);
		first = first ? first : rc;
	}
	return first;
}
