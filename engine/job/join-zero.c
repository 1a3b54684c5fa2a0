/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/job/barrier-state.h"
#include "engine/job/join-internal.h"
#include "engine/node/peers.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The role of rank 0: admits the others, and merges what all describe. */

uint32_t join_count(const struct engine *e)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < e->world; i++)
		n += e->peers[i].entry.present;
	return n;
}

uint32_t join_missing(const struct engine *e, uint32_t missing[JOIN_NAMED])
{
	uint32_t n = 0;

	for (uint32_t rank = 0; rank < e->world && n < JOIN_NAMED && !e->job.ready; rank++)
		if (!e->peers[rank].entry.present)
			missing[n++] = rank;
	return n;
}

static struct contribution *contribution(const struct join_zero *z, uint32_t i)
{
	return (struct contribution *)z->catalogs.items + i;
}

static struct contribution *find_contribution(const struct join_zero *z, uint64_t hash)
{
	for (uint32_t i = 0; i < z->catalogs.count; i++)
		if (contribution(z, i)->hash == hash)
			return contribution(z, i);
	return NULL;
}

static void forget_bytes(struct contribution *c)
{
	free(c->bytes.data);
	c->bytes = (struct wire_writer){ 0 };
}

static void release(struct contribution *c)
{
	if (!c->is_own)
		catalog_free(c->catalog);
	c->catalog = NULL;
	forget_bytes(c);
}

void join_free_zero(struct join_zero *z)
{
	for (uint32_t i = 0; i < z->catalogs.count; i++)
		release(contribution(z, i));
	free(z->catalogs.items);
	free(z->catalog_of);
}

/* Returns a contribution to which no rank refers any more, released; NULL: there is none. */
static struct contribution *unused(struct join_zero *z, uint32_t world)
{
	CLEANUP(free) bool *used = calloc(z->catalogs.count + 1, sizeof(*used));
	uint32_t i = 0;

	for (uint32_t rank = 0; used && rank < world; rank++)
		used[z->catalog_of[rank]] = true;
	while (used && i < z->catalogs.count && used[i + 1])
		i++;
	if (!used || i == z->catalogs.count)
		return NULL;
	release(contribution(z, i));
	return contribution(z, i);
}

/* Adds a contribution, in place of one that no rank refers to: there are never more than ranks,
 * however often one joins.
 */
static struct contribution *add_contribution(struct join_zero *z, uint32_t world, uint64_t hash,
					     uint64_t total)
{
	struct contribution *c = unused(z, world);

	if (!c)
		c = vec_add(&z->catalogs, sizeof(*c));
	if (c)
		*c = (struct contribution){ .hash = hash, .total = total };
	return c;
}

/* Notes that the rank describes c from now on. */
static void refer(struct join_zero *z, uint32_t rank, const struct contribution *c)
{
	z->catalog_of[rank] = (uint32_t)(c - contribution(z, 0)) + 1;
}

static bool all_described(const struct engine *e)
{
	const struct join_zero *z = &e->job.join->zero;

	for (uint32_t rank = 0; rank < e->world; rank++)
		if (!z->catalog_of[rank] || !contribution(z, z->catalog_of[rank] - 1)->catalog)
			return false;
	return true;
}

static int merge_one(struct engine *e, struct catalog *into, struct contribution *c,
		     uint32_t rank)
{
	CLEANUP(free) uint32_t *params = calloc(c->catalog->nparams + 1, sizeof(*params));
	CLEANUP(free) uint32_t *groups = calloc(c->catalog->ngroups + 1, sizeof(*groups));

	if (!params || !groups)
		return -ENOMEM;
	c->merged = true;
	return catalog_merge(into, c->catalog, rank, params, groups, e->job.why,
			     sizeof(e->job.why));
}

static int merge_all(struct engine *e, struct catalog *into)
{
	const struct join_zero *z = &e->job.join->zero;
	int rc;

	e->job.why[0] = '\0';
	for (uint32_t rank = 0; rank < e->world; rank++) {
		struct contribution *c = contribution(z, z->catalog_of[rank] - 1);

		if (!c->merged && (rc = merge_one(e, into, c, rank)))
			return rc;
	}
	return catalog_finish(into);
}

static void begin_refusal(struct engine *e, int status)
{
	e->job.join->zero.refusal = status;
	e->job.join->zero.refuse_until_ms = monotonic_ms() + e->timeout_ms;
	if (status == -ENOMEM || !e->job.why[0])
		snprintf(e->job.why, sizeof(e->job.why),
			 "the ranks' descriptions cannot be merged: %s", strerror(-status));
}

void join_fail_when_told(struct engine *e, uint64_t now)
{
	const struct join_zero *z = &e->job.join->zero;

	if (!z->refusal)
		return;
	for (uint32_t rank = 1; rank < e->world && now < z->refuse_until_ms; rank++)
		if (z->catalog_of[rank])
			return;
	join_fail(e, z->refusal, "%s", e->job.why);
}

static void merge_when_complete(struct engine *e)
{
	struct join_zero *z = &e->job.join->zero;
	struct catalog *catalog = e->own;
	int rc = 0;

	if (e->job.ready || e->job.failure || z->refusal || !all_described(e))
		return;
	if (z->catalogs.count == 1) { /* all ranks describe the same as rank 0 */
		contribution(z, 0)->merged = true;
	} else {
		catalog = catalog_new();
		rc = catalog ? merge_all(e, catalog) : -ENOMEM;
	}
	if (!rc)
		rc = join_complete(e, catalog);
	if (rc) {
		begin_refusal(e, rc);
		if (catalog != e->own)
			catalog_free(catalog);
		return;
	}
	/* a rank that comes back with what was merged is known by its hash */
	for (uint32_t i = 0; i < z->catalogs.count; i++)
		release(contribution(z, i));
	/* while they waited, ranks only said HELLO: their silence counts from here */
	for (uint32_t rank = 0; rank < e->world; rank++)
		peers_heard(e, rank, NULL);
}

int join_describe_zero(struct engine *e)
{
	struct join_zero *z = &e->job.join->zero;
	struct contribution *c = find_contribution(z, e->own->hash);
	struct wire_entry entry;

	if (!c && !(c = add_contribution(z, e->world, e->own->hash, 0)))
		return -ENOMEM;
	release(c); /* frees the copy that a rank with the same catalog has sent */
	c->catalog = e->own;
	c->is_own = true;
	refer(z, 0, c);
	join_fill_entry(e, &entry);
	peers_set_entry(e, &entry);
	e->job.membership++;
	merge_when_complete(e);
	return 0;
}

/* ---- JOIN and CATALOG_PUT ---- */

/* Returns why rank 0 refuses a JOIN; NULL: it does not. */
static const char *objection(const struct engine *e, const struct wire_header *header,
			     const struct wire_join *join)
{
	const struct wire_entry *entry = &join->entry;

	if (e->rank || !e->job.join->zero.catalog_of)
		return "this process is not rank 0";
	if (header->job != e->job.hash)
		return "this is rank 0 of another job";
	if (e->job.join->zero.refusal)
		return e->job.why;
	if (join->world != e->world)
		return "the job has another world size";
	if (!entry->rank || entry->rank >= e->world || !entry->present ||
	    !wire_text_ok(entry->host, sizeof(entry->host)) ||
	    !wire_text_ok(entry->hostname, sizeof(entry->hostname)) ||
	    !wire_text_ok(entry->address, sizeof(entry->address)))
		return "the JOIN message is malformed";
	if (join->catalog_bytes > WIRE_CATALOG_MAX)
		return "the rank's description has more than 256 MiB";
	return NULL;
}

/* Returns true if another process of that rank is live: it was heard within timeout_ms, because
 * ranks that wait for the others keep asking HELLO.
 */
static bool is_taken(const struct engine *e, const struct wire_entry *entry)
{
	const struct peer *p = &e->peers[entry->rank];

	return peer_is_live(p) && monotonic_ms() < p->heard_ms + e->timeout_ms &&
	       memcmp(p->entry.cookie, entry->cookie, sizeof(entry->cookie));
}

/* Takes incarnation and counts of the job, which went on while rank 0 was gone, from a rank
 * that joins this later process of rank 0.  Some ranks may have newer counts than others.
 */
static void take_over(struct engine *e, const struct wire_header *header,
		      const struct wire_join *join)
{
	e->job.incarnation = header->incarnation;
	e->job.membership = u64_max(e->job.membership, header->membership);
	join_catch_up(e, &join->control, join->barrier);
}

void join_serve_join(struct engine *e, uint32_t peer, const struct wire_header *header,
		     const struct wire_join *join)
{
	const char *why = objection(e, header, join);
	struct wire_joined joined = { .complete = e->job.ready };
	struct join_zero *z = &e->job.join->zero;
	struct contribution *c;

	assert(node_is_engine_thread(e));
	if (why) { /* -ENOENT: the rank looks for rank 0 at its other seeds */
		bool is_zero = !e->rank && z->catalog_of && header->job == e->job.hash;

		node_refuse(e, peer, header->request, is_zero ? -EINVAL : -ENOENT, "%s", why);
		return;
	}
	if (is_taken(e, &join->entry)) {
		/* the old process may be gone: a look finds out before the next JOIN */
		peers_look(e, join->entry.rank);
		peers_reach(e, join->entry.rank);
		node_refuse(e, peer, header->request, -EBUSY,
			    "has a live process of rank %u already", join->entry.rank);
		return;
	}
	if (!e->job.ready && header->incarnation)
		take_over(e, header, join);
	c = find_contribution(z, join->catalog_hash);
	if (!c) { /* the rank's catalog of before may make room for the new one */
		z->catalog_of[join->entry.rank] = 0;
		c = add_contribution(z, e->world, join->catalog_hash, join->catalog_bytes);
	}
	if (!c) {
		node_ack(e, peer, header->request, -ENOMEM);
		return;
	}
	joined.need_catalog = !c->catalog && !c->merged;
	joined.incarnation = e->job.incarnation;
	joined.barrier = u64_max(e->job.barrier->count, e->job.barrier->before);
	wire_control_from_page(&joined.control, e->registry.control);
	refer(z, join->entry.rank, c);
	peers_set_entry(e, &join->entry);
	e->job.membership++;
	node_send(e, peer, WIRE_JOINED, header->request, &joined, NULL, 0);
	merge_when_complete(e);
}

static int take_part(struct engine *e, struct contribution *c, const struct wire_catalog *part,
		     const void *bytes)
{
	int rc = 0;

	if (!part->offset)
		c->bytes.size = 0;
	if (part->offset != c->bytes.size)
		return 0;
	wire_put_bytes(&c->bytes, bytes, part->size);
	if (c->bytes.bad) {
		snprintf(e->job.why, sizeof(e->job.why), "%s", strerror(ENOMEM));
		rc = -ENOMEM;
	} else if (c->bytes.size == c->total) {
		rc = catalog_decode(&c->catalog, c->bytes.data, c->bytes.size, e->world,
				    e->job.why, sizeof(e->job.why));
	}
	if (c->catalog && c->catalog->hash != c->hash) {
		catalog_free(c->catalog);
		c->catalog = NULL;
		snprintf(e->job.why, sizeof(e->job.why),
			 "it is not the one that JOIN announced");
		rc = -EBADMSG;
	}
	if (rc || c->catalog)
		forget_bytes(c);
	return rc;
}

/* Several ranks may send the same catalog at once: each that begins at 0 begins it anew, and
 * parts that do not follow the newest are acknowledged and dropped.  A catalog whose sender
 * died is asked for again at the next JOIN.
 */
void join_serve_put(struct engine *e, uint32_t peer, const struct wire_header *header,
		    const struct wire_catalog *part, const void *bytes, size_t size)
{
	struct contribution *c =
		e->rank ? NULL : find_contribution(&e->job.join->zero, part->hash);
	int rc = 0;

	assert(node_is_engine_thread(e));
	if (!c || part->total != c->total || part->size != size || size > c->total ||
	    part->offset > c->total - size) {
		node_ack(e, peer, header->request, -EINVAL);
		return;
	}
	if (!c->catalog && !c->merged)
		rc = take_part(e, c, part, bytes);
	if (rc)
		log_warn("rank %u sent a catalog that cannot be read: %s", header->rank,
			 e->job.why);
	node_ack(e, peer, header->request, rc);
	merge_when_complete(e);
}
