/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/jobfile.h"
#include "engine/join.h"
#include "engine/listen.h"
#include "engine/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* How a rank finds rank 0 and the job's key. */

enum { PORTS_TRIED = 16 };

static int resolve(const char *host, char ip[INET_ADDRSTRLEN])
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	struct sockaddr_in address;

	if (getaddrinfo(host, NULL, &hints, &found))
		return -ENOENT;
	memcpy(&address, found->ai_addr, sizeof(address));
	freeaddrinfo(found);
	inet_ntop(AF_INET, &address.sin_addr, ip, INET_ADDRSTRLEN);
	return 0;
}

/* The addresses at which it may listen. */
static void seeds_from_master(struct engine *e, const char ip[INET_ADDRSTRLEN])
{
	unsigned port = e->launch.port ? e->launch.port : LISTEN_PORT_FIRST;
	unsigned end = e->launch.port ? port + 1 : port + PORTS_TRIED;
	size_t used = 0, room = sizeof(e->join->seeds);

	static_assert(PORTS_TRIED * sizeof("tcp://255.255.255.255:65535,") <
			      sizeof(e->join->seeds),
		      "seeds");
	for (; port < end; port++)
		used += (size_t)snprintf(e->join->seeds + used, room - used, "%stcp://%s:%u",
					 used ? "," : "", ip, port);
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

static bool found_job_file(struct engine *e)
{
	struct jobfile job;
	int rc;

	if (e->launch.rendezvous[0])
		rc = jobfile_read(e->launch.rendezvous, &job);
	else
		rc = jobfile_find(e->launch.job, &job);
	if (rc || job.world != e->world || key_of(e, &job))
		return false;
	snprintf(e->join->seeds, sizeof(e->join->seeds), "tcp://%s", job.address);
	return true;
}

static bool found_master(struct engine *e)
{
	char ip[INET_ADDRSTRLEN];

	if (!e->launch.master_addr[0] || e->launch.rendezvous[0] || own_key(e) ||
	    resolve(e->launch.master_addr, ip))
		return false;
	seeds_from_master(e, ip);
	return true;
}

bool join_find(struct engine *e)
{
	if (!e->join->seeds[0] && !found_job_file(e) && !found_master(e))
		return false;
	return e->messages || !listen_open(e, "");
}
