/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/job/join-internal.h"
#include "engine/launch/jobfile.h"
#include "engine/launch/source.h"
#include "engine/node/bulk.h"
#include "engine/node/peers.h"
#include "engine/node/writer-memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The observer's role: its key, and the job's next processes when all ranks are lost. */

enum { LOOK_MS = 500 };

void join_take_key(struct engine *e, struct source_key *key)
{
	e->job.key = *key;
	explicit_bzero(key, sizeof(*key));
	writer_memory_init(e);
}

int join_keep_options(struct engine *e, const struct engine_options *o)
{
	struct engine_options *kept = &e->job.join->options;

	*kept = (struct engine_options){ .source = strdup(o->source),
					 .key_file = o->key_file ? strdup(o->key_file) : NULL,
					 .plain = o->plain,
					 .writable = o->writable };
	return kept->source && !kept->key_file == !o->key_file ? 0 : -ENOMEM;
}

/* Opens the message transport with the new key, which no link to a lost rank survives. */
static int open_anew(struct engine *e)
{
	struct transport *before = e->messages.transport;
	int rc;

	join_unlink_seed(e);
	peers_unlink(e);
	bulk_close(e);
	rc = node_open_messages(e, NULL);
	if (rc)
		e->messages.transport = before;
	else
		e->messages.ops->close(before);
	return rc;
}

/* Takes the key of the job's next processes.  A job that ended in order has removed its key,
 * and the next has another.  False: the key is the present one, or there is none.
 */
static bool take_new_key(struct engine *e)
{
	struct engine_options o = e->job.join->options;
	struct source_key key, before = e->job.key;
	struct jobfile job;
	char why[256];
	bool taken = false;

	if (o.source)
		o.source = source_address(o.source, &job);
	if (o.source && !source_key(&o, &key, why, sizeof(why)) &&
	    (key.is_there != before.is_there ||
	     memcmp(key.bytes, before.bytes, sizeof(key.bytes)) != 0)) {
		join_take_key(e, &key);
		taken = !open_anew(e);
		if (!taken)
			join_take_key(e, &before);
	}
	explicit_bzero(&key, sizeof(key));
	explicit_bzero(&before, sizeof(before));
	return taken;
}

void join_try_new_key(struct engine *e)
{
	if (!take_new_key(e))
		peers_say_of_lost(e, e->job.why);
	e->job.join->state = JOIN_DONE; /* where join_turn looks again */
}

/* Adds the address that a host of the source has by now, and tries it next: the job's next
 * processes may have moved.  One host is resolved at a time, and nobody waits for it.
 */
static void add_present_address(struct join *j)
{
	unsigned before = join_count_seeds(&j->seeds);
	char seed[64];

	if (source_ask(j->options.source, &j->place, &j->resolver, seed, sizeof(seed)))
		return;
	join_add_seed(&j->seeds, seed);
	if (join_count_seeds(&j->seeds) > before)
		j->seeds.current = before;
}

void join_look_for_job(struct engine *e, uint64_t now)
{
	struct join *j = e->job.join;
	const char *source = j->options.source;
	struct jobfile job;

	j->retry_ms = now + LOOK_MS;
	join_unlink_seed(e);
	if (source && !source_is_address(source)) {
		/* the job's next rank 0 may have another address; its job file has it */
		if (jobfile_find(source, &job))
			return;
		snprintf(j->seeds.list, sizeof(j->seeds.list), "tcp://%s", job.address);
		j->seeds.current = 0;
	} else {
		/* the options may name another rank, whose next process can be elsewhere */
		if (e->peers[0].entry.address[0])
			join_add_seed(&j->seeds, e->peers[0].entry.address);
		if (source)
			add_present_address(j);
	}
	j->refresh = false; /* the table to refresh was of the job that ended */
	j->state = JOIN_HELLO;
}

void join_say_other(struct engine *e, const struct wire_welcome *w)
{
	char why[sizeof(e->peers->why)];

	if (strcmp(w->job, e->job.name))
		snprintf(why, sizeof(why),
			 "its address now belongs to job %.30s: mount that job", w->job);
	else if (w->world != e->world)
		snprintf(why, sizeof(why),
			 "the job was started again, with %u ranks instead of %u: mount it "
			 "again",
			 w->world, e->world);
	else
		snprintf(why, sizeof(why),
			 "the job was started again, with other parameters or groups: mount it "
			 "again");
	peers_say_of_lost(e, why);
}
