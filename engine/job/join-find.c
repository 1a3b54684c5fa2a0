/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/job/join.h"
#include "engine/job/listen.h"
#include "engine/launch/jobfile.h"
#include "engine/launch/keyfile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* How a rank finds rank 0 and the job's key. */

enum { PORTS = LISTEN_PORT_LAST - LISTEN_PORT_FIRST + 1, BEFORE_FIRST_AGAIN = 15 };

/* Into master_ip, by a resolver that is asked again the next time. */
static int find_master(struct engine *e)
{
	struct join *j = e->join;
	const char *master = listen_master(e);
	int rc = j->master_ip[0] ? 0 : resolver_ask(&j->resolver, master, j->master_ip);

	if (rc && rc != -EAGAIN && !j->said_unknown) {
		log_warn("%s: %s; trying on", master,
			 rc == -ENOENT ? "no such host is known" : strerror(-rc));
		j->said_unknown = true;
	}
	return rc;
}

static void add_seed(struct join *j, unsigned port)
{
	size_t used = strlen(j->seeds);

	snprintf(j->seeds + used, sizeof(j->seeds) - used, "%stcp://%s:%u", used ? "," : "",
		 j->master_ip, port);
}

/* The addresses at which it may listen.  The first one, where it nearly always is, comes again
 * and again: rank 0 may begin to listen while the others are tried.
 */
static void seeds_from_master(struct engine *e)
{
	struct join *j = e->join;

	static_assert((PORTS + PORTS / BEFORE_FIRST_AGAIN) *
				      sizeof("tcp://255.255.255.255:65535,") <
			      sizeof(j->seeds),
		      "seeds");
	if (e->launch.port) {
		add_seed(j, e->launch.port);
		return;
	}
	for (unsigned i = 0; i < PORTS; i++) {
		if (i && i % BEFORE_FIRST_AGAIN == 0)
			add_seed(j, LISTEN_PORT_FIRST);
		add_seed(j, LISTEN_PORT_FIRST + i);
	}
}

/* The key of a job whose file does not say it. */
static int own_key(struct engine *e)
{
	char why[256];
	int rc;

	if (e->failure)
		return e->failure; /* said already */
	if (e->launch.plain || e->has_key)
		return 0;
	if (!e->launch.key_file[0])
		return -ENOKEY;
	rc = keyfile_load(e->launch.key_file, e->key, NULL, why, sizeof(why));
	if (rc)
		join_fail(e, rc, "%s", why);
	e->has_key = !rc;
	return rc;
}

static int key_of(struct engine *e, const struct jobfile *job)
{
	char why[256];
	int rc = own_key(e);

	if (rc != -ENOKEY)
		return rc;
	if (!job->key_file[0])
		return 0; /* the job runs plain, and says so under our own user's folder */
	rc = keyfile_load(job->key_file, e->key, NULL, why, sizeof(why));
	e->has_key = !rc;
	return rc;
}

static bool has_our_world(struct engine *e, const struct jobfile *job)
{
	if (job->world == e->world)
		return true;
	if (!e->join->told_of_world)
		log_warn("job %s at %s has %u ranks, WORLD_SIZE is %u here", job->job,
			 job->address, job->world, e->world);
	e->join->told_of_world = true;
	return false;
}

static bool found_job_file(struct engine *e)
{
	struct jobfile job;
	int rc;

	if (e->launch.rendezvous[0])
		rc = jobfile_read(e->launch.rendezvous, &job);
	else
		rc = jobfile_find(e->launch.job, &job);
	if (rc || !has_our_world(e, &job) || key_of(e, &job))
		return false;
	snprintf(e->join->seeds, sizeof(e->join->seeds), "tcp://%s", job.address);
	return true;
}

static bool found_master(struct engine *e)
{
	if (!e->launch.master_addr[0] || e->launch.rendezvous[0] || own_key(e) ||
	    find_master(e))
		return false;
	seeds_from_master(e);
	return true;
}

static bool open_messages(struct engine *e)
{
	struct join *j = e->join;
	int rc;

	if (e->message_ops == &transport_zmq && find_master(e))
		return false;
	rc = listen_open(e, j->master_ip, "");
	if (rc && rc != j->listen_failed)
		log_warn("cannot listen on this host's address towards %s: %s; trying on",
			 listen_master(e), strerror(-rc));
	j->listen_failed = rc;
	return !rc;
}

bool join_find(struct engine *e)
{
	if (!e->join->seeds[0] && !found_job_file(e) && !found_master(e))
		return false;
	return e->messages || open_messages(e);
}
