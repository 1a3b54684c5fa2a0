/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/job/barrier-state.h"
#include "engine/job/join.h"
#include "engine/node/peers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Rank 0's part: it takes the others in, and merges what they describe. */

uint32_t join_count(const struct engine *e)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < e->world; i++)
		n += e->peers[i].entry.present;
	return n;
}

void join_serve_hello(struct engine *e, uint32_t peer, const struct wire_header *header)
{
	uint64_t request = header->request;
	struct wire_welcome w = { .world = e->world,
				  .joined = join_count(e),
				  .incarnation = e->incarnation,
				  .membership = e->membership };
	uint32_t missing[JOIN_NAMED];

	if (e->failure || e->join->refusal) {
		node_refuse(e, peer, request, -EINVAL, "%s", e->why);
		if (e->join->refusal && header->rank < e->world)
			e->join->contribution_of[header->rank] = 0;
		return;
	}
	memcpy(w.job, e->job, sizeof(w.job));
	if (e->ready) {
		w.catalog_hash = e->catalog->hash;
		w.catalog_bytes = e->catalog_bytes.size;
	}
	node_send(e, peer, WIRE_WELCOME, request, &w, missing,
		  join_missing(e, missing) * sizeof(missing[0]));
}

static struct contribution *find(struct join *j, uint64_t hash)
{
	for (uint32_t i = 0; i < j->ncontributions; i++)
		if (j->contributions[i].hash == hash)
			return &j->contributions[i];
	return NULL;
}

/* One that no rank refers to any more, emptied; NULL: there is none. */
static struct contribution *unused(struct join *j, uint32_t world)
{
	CLEANUP(free) bool *used = calloc(j->ncontributions + 1, sizeof(*used));
	uint32_t i = 0;

	for (uint32_t rank = 0; used && rank < world; rank++)
		used[j->contribution_of[rank]] = true;
	while (used && i < j->ncontributions && used[i + 1])
		i++;
	if (!used || i == j->ncontributions)
		return NULL;
	catalog_free(j->contributions[i].catalog);
	free(j->contributions[i].bytes.data);
	return &j->contributions[i];
}

/* There are never more than one of each rank, whatever ranks say how often. */
static struct contribution *add(struct join *j, uint32_t world, uint64_t hash, uint64_t total)
{
	struct contribution *c = unused(j, world);

	if (!c) {
		c = realloc(j->contributions, (j->ncontributions + 1) * sizeof(*c));
		if (!c)
			return NULL;
		j->contributions = c;
		c += j->ncontributions++;
	}
	*c = (struct contribution){ .hash = hash, .total = total };
	return c;
}

/* Why a JOIN cannot be, or NULL. */
static const char *objection(const struct engine *e, const struct wire_header *header,
			     const struct wire_join *join)
{
	const struct wire_entry *entry = &join->entry;

	if (e->rank || !e->join->contribution_of)
		return "is not rank 0";
	if (header->job != e->job_hash)
		return "is rank 0 of another job";
	if (e->join->refusal)
		return e->why;
	if (join->world != e->world)
		return "has another world size";
	if (!entry->rank || entry->rank >= e->world || !entry->present ||
	    !wire_text_ok(entry->host, sizeof(entry->host)) ||
	    !wire_text_ok(entry->hostname, sizeof(entry->hostname)) ||
	    !wire_text_ok(entry->address, sizeof(entry->address)))
		return "got a malformed JOIN";
	if (join->catalog_bytes > WIRE_CATALOG_MAX)
		return "takes no description of more than 256 MiB";
	return NULL;
}

/* Another process that was heard lately: one that waits for the others says HELLO. */
static bool is_taken(const struct engine *e, const struct wire_entry *entry)
{
	const struct peer *p = &e->peers[entry->rank];

	return peer_is_live(p) && monotonic_ms() < p->heard_ms + e->timeout_ms &&
	       memcmp(p->entry.cookie, entry->cookie, sizeof(entry->cookie));
}

/* The job went on without its rank 0: it has an incarnation, and is somewhere.  One rank may
 * know less of it than another does.
 */
static void take_over(struct engine *e, const struct wire_header *header,
		      const struct wire_join *join)
{
	e->incarnation = header->incarnation;
	e->membership = u64_max(e->membership, header->membership);
	join_catch_up(e, &join->control, join->barrier);
}

void join_serve_join(struct engine *e, uint32_t peer, const struct wire_header *header,
		     const struct wire_join *join)
{
	const char *why = objection(e, header, join);
	struct wire_joined joined = { .complete = e->ready };
	struct join *j = e->join;
	struct contribution *c;

	if (why) {
		node_refuse(e, peer, header->request,
			    header->job == e->job_hash ? -EINVAL : -ENOENT, "%s", why);
		return;
	}
	if (is_taken(e, &join->entry)) {
		peers_look(e, join->entry.rank); /* it may be gone, which is soon seen */
		peers_reach(e, join->entry.rank);
		node_refuse(e, peer, header->request, -EBUSY,
			    "has a live process of rank %u already", join->entry.rank);
		return;
	}
	if (!e->ready && header->incarnation)
		take_over(e, header, join);
	c = find(j, join->catalog_hash);
	if (!c)
		j->contribution_of[join->entry.rank] =
			0; /* what it described before, it does no more */
	if (!c && !(c = add(j, e->world, join->catalog_hash, join->catalog_bytes))) {
		node_ack(e, peer, header->request, -ENOMEM);
		return;
	}
	joined.need_catalog = !c->catalog;
	joined.incarnation = e->incarnation;
	joined.barrier = u64_max(e->barrier->count, e->barrier->before);
	wire_control_from_page(&joined.control, e->registry.control);
	j->contribution_of[join->entry.rank] = (uint32_t)(c - j->contributions) + 1;
	peers_set_entry(e, &join->entry);
	e->membership++;
	node_send(e, peer, WIRE_JOINED, header->request, &joined, NULL, 0);
	join_merge_when_complete(e);
}

static void forget_bytes(struct contribution *c)
{
	free(c->bytes.data);
	c->bytes = (struct wire_writer){ 0 };
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
		snprintf(e->why, sizeof(e->why), "%s", strerror(ENOMEM));
		rc = -ENOMEM;
	} else if (c->bytes.size == c->total) {
		rc = catalog_decode(&c->catalog, c->bytes.data, c->bytes.size, e->world, e->why,
				    sizeof(e->why));
	}
	if (c->catalog && c->catalog->hash != c->hash) {
		catalog_free(c->catalog);
		c->catalog = NULL;
		snprintf(e->why, sizeof(e->why), "it is another than was announced");
		rc = -EBADMSG;
	}
	if (rc || c->catalog)
		forget_bytes(c);
	return rc;
}

/* Several ranks may send the same one at once: each that begins at 0 begins it anew, and what
 * does not fit the newest is acknowledged and dropped.  One whose sender died is asked for
 * again at the next JOIN.
 */
void join_serve_put(struct engine *e, uint32_t peer, const struct wire_header *header,
		    const struct wire_catalog *part, const void *bytes, size_t size)
{
	struct contribution *c = e->rank ? NULL : find(e->join, part->hash);
	int rc = 0;

	if (!c || part->total != c->total || part->size != size || size > c->total ||
	    part->offset > c->total - size) {
		node_ack(e, peer, header->request, -EINVAL);
		return;
	}
	if (!c->catalog)
		rc = take_part(e, c, part, bytes);
	if (rc)
		log_warn("rank %u sent a catalog that cannot be read: %s", header->rank,
			 e->why);
	node_ack(e, peer, header->request, rc);
	join_merge_when_complete(e);
}

static bool all_described(const struct engine *e)
{
	const struct join *j = e->join;

	for (uint32_t rank = 0; rank < e->world; rank++)
		if (!j->contribution_of[rank] ||
		    !j->contributions[j->contribution_of[rank] - 1].catalog)
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
	return catalog_merge(into, c->catalog, rank, params, groups, e->why, sizeof(e->why));
}

static int merge_all(struct engine *e, struct catalog *into)
{
	struct join *j = e->join;
	int rc;

	e->why[0] = '\0';
	for (uint32_t rank = 0; rank < e->world; rank++) {
		struct contribution *c = &j->contributions[j->contribution_of[rank] - 1];

		if (!c->merged && (rc = merge_one(e, into, c, rank)))
			return rc;
	}
	return catalog_finish(into);
}

/* Who waits for the others to come only says HELLO: its silence counts from here. */
static void count_silence(struct engine *e)
{
	for (uint32_t rank = 0; rank < e->world; rank++)
		peers_heard(e, rank, NULL);
}

static void begin_refusal(struct engine *e, int status)
{
	e->join->refusal = status;
	e->join->tell_until_ms = monotonic_ms() + e->timeout_ms;
	if (status == -ENOMEM || !e->why[0])
		snprintf(e->why, sizeof(e->why), "the ranks' descriptions cannot be merged: %s",
			 strerror(-status));
}

void join_fail_when_told(struct engine *e, uint64_t now)
{
	const struct join *j = e->join;

	if (!j->refusal)
		return;
	for (uint32_t rank = 1; rank < e->world && now < j->tell_until_ms; rank++)
		if (j->contribution_of[rank])
			return;
	join_fail(e, j->refusal, "%s", e->why);
}

void join_merge_when_complete(struct engine *e)
{
	struct catalog *catalog;
	int rc;

	if (e->ready || e->failure || e->join->refusal || !all_described(e))
		return;
	catalog = catalog_new();
	rc = catalog ? merge_all(e, catalog) : -ENOMEM;
	if (!rc)
		rc = join_complete(e, catalog);
	if (!rc) {
		count_silence(e);
	} else {
		begin_refusal(e, rc);
		catalog_free(catalog);
	}
}

static int describe_zero(struct engine *e)
{
	struct join *j = e->join;
	struct contribution *c = find(j, e->own->hash);
	struct wire_entry entry;
	int rc = 0;

	if (!c && !(c = add(j, e->world, e->own->hash, 0)))
		return -ENOMEM;
	if (!c->catalog) { /* else others have sent the same, or do yet */
		c->bytes.size = 0;
		rc = catalog_encode(e->own, &c->bytes);
		c->total = c->bytes.size;
	}
	if (!rc && !c->catalog)
		rc = catalog_decode(&c->catalog, c->bytes.data, c->bytes.size, e->world, e->why,
				    sizeof(e->why));
	if (rc)
		return rc;
	j->contribution_of[0] = (uint32_t)(c - j->contributions) + 1;
	join_fill_entry(e, &entry);
	peers_set_entry(e, &entry);
	e->membership++;
	join_merge_when_complete(e);
	return 0;
}

int join_described(struct engine *e)
{
	int rc = e->rank ? catalog_encode(e->own, &e->join->own) : describe_zero(e);

	e->join->described = !rc;
	join_count_wait(e, monotonic_ms());
	return rc;
}
