/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/edits.h"
#include "engine/log.h"

#include <errno.h>
#include <string.h>

void edits_init(struct edits *s, uint64_t bytes_max)
{
	memset(s, 0, sizeof(*s));
	pthread_mutex_init(&s->lock, NULL);
	s->bytes_max = bytes_max;
}

void edit_free(struct edit *e)
{
	struct edit_piece *next;

	for (struct edit_piece *p = e ? e->first : NULL; p; p = next) {
		next = p->next;
		free(p);
	}
	free(e);
}

void edits_fini(struct edits *s)
{
	struct edit *next;

	for (struct edit *e = s->list; e; e = next) {
		next = e->next;
		edit_free(e);
	}
	pthread_mutex_destroy(&s->lock);
}

static struct edit **find(struct edits *s, const uint64_t transaction[2])
{
	struct edit **at = &s->list;

	while (*at && memcmp((*at)->transaction, transaction, sizeof((*at)->transaction)))
		at = &(*at)->next;
	return at;
}

/* What a piece costs us, so that very many tiny ones are bounded too. */
static uint64_t cost(const struct edit_piece *piece)
{
	return sizeof(*piece) + piece->size;
}

static void drop(struct edits *s, struct edit **at)
{
	struct edit *e = *at;

	*at = e->next;
	s->count--;
	s->bytes -= e->cost;
	edit_free(e);
}

static struct edit *find_or_add(struct edits *s, const uint64_t transaction[2])
{
	struct edit **at = find(s, transaction);

	if (!*at && s->count < EDITS_MAX && (*at = calloc(1, sizeof(**at)))) {
		memcpy((*at)->transaction, transaction, sizeof((*at)->transaction));
		s->count++;
	}
	return *at;
}

static int stage(struct edits *s, const uint64_t transaction[2], uint64_t now,
		 struct edit_piece *piece)
{
	struct edit *e;

	if (s->bytes + cost(piece) > s->bytes_max || !(e = find_or_add(s, transaction)))
		return -ENOSPC;
	if (e->state != EDIT_STAGED)
		return -EBUSY;
	if (e->last)
		e->last->next = piece;
	else
		e->first = piece;
	e->last = piece;
	e->touched_ms = now;
	e->has_grad |= piece->is_grad;
	e->bytes += piece->size;
	e->cost += cost(piece);
	s->bytes += cost(piece);
	return 0;
}

int edits_stage(struct edits *s, const uint64_t transaction[2], uint64_t now, uint64_t epoch,
		uint32_t row, bool is_grad, uint64_t offset, const void *data, uint32_t size)
{
	struct edit_piece *piece = malloc(sizeof(*piece) + size);
	int rc;

	if (!piece)
		return -ENOMEM;
	*piece = (struct edit_piece){ .epoch = epoch, .row = row, .is_grad = is_grad,
				      .offset = offset, .size = size };
	memcpy(piece->data, data, size);
	pthread_mutex_lock(&s->lock);
	rc = stage(s, transaction, now, piece);
	pthread_mutex_unlock(&s->lock);
	if (rc)
		free(piece);
	return rc;
}

int edits_decide(struct edits *s, const uint64_t transaction[2], bool commit, uint32_t peer,
		 uint64_t request)
{
	struct edit **at;
	int rc = -ENOENT;

	pthread_mutex_lock(&s->lock);
	at = find(s, transaction);
	if (*at && (*at)->state == EDIT_STAGED) {
		rc = 0;
		if (commit) {
			(*at)->state = EDIT_DECIDED;
			(*at)->peer = peer;
			(*at)->request = request;
			atomic_fetch_add(&s->decided, 1);
		} else {
			drop(s, at);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

unsigned edits_expire(struct edits *s, uint64_t before)
{
	unsigned dropped = 0;

	pthread_mutex_lock(&s->lock);
	for (struct edit **at = &s->list; *at;) {
		if ((*at)->state == EDIT_STAGED && (*at)->touched_ms < before) {
			drop(s, at);
			dropped++;
		} else {
			at = &(*at)->next;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return dropped;
}

static int check_pieces(const struct edit *e, struct registry *r)
{
	int rc = 0;

	for (const struct edit_piece *p = e->first; p && !rc; p = p->next)
		rc = registry_check(r, p->epoch, p->row, p->offset, p->size);
	return rc;
}

static int write_pieces(const struct edit *e, struct registry *r)
{
	int rc = 0, status;

	for (const struct edit_piece *p = e->first; p; p = p->next) {
		status = registry_write(r, p->epoch, p->row, p->offset, p->data, p->size);
		if (status)
			rc = status;
	}
	return rc;
}

unsigned edits_apply(struct edits *s, struct registry *r, bool grads)
{
	unsigned applied = 0;

	if (!atomic_load_explicit(&s->decided, memory_order_acquire))
		return 0;
	pthread_mutex_lock(&s->lock);
	for (struct edit *e = s->list; e; e = e->next) {
		if (e->state != EDIT_DECIDED || (e->has_grad && !grads))
			continue;
		e->status = check_pieces(e, r);
		if (!e->status)
			e->status = write_pieces(e, r);
		if (e->status)
			log_warn("an edit of %llu bytes was not applied: %s", (unsigned long long)e->bytes,
				 strerror(-e->status));
		e->state = EDIT_APPLIED;
		atomic_fetch_sub(&s->decided, 1);
		applied++;
	}
	pthread_mutex_unlock(&s->lock);
	return applied;
}

struct edit *edits_take_applied(struct edits *s)
{
	struct edit *taken = NULL;

	pthread_mutex_lock(&s->lock);
	for (struct edit **at = &s->list; *at; at = &(*at)->next) {
		if ((*at)->state != EDIT_APPLIED)
			continue;
		taken = *at;
		*at = taken->next;
		s->count--;
		s->bytes -= taken->cost;
		break;
	}
	pthread_mutex_unlock(&s->lock);
	return taken;
}
