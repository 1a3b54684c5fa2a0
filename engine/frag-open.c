/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/frag-internal.h"
#include "engine/jobfile.h"
#include "engine/join.h"
#include "engine/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { PORT_FIRST = 21017, PORT_LAST = 21117 };
static const uint64_t STAGE_MEM = (uint64_t)4 << 30;

static atomic_flag opened = ATOMIC_FLAG_INIT;

const char *frag_version(void)
{
	return PACKAGE_VERSION;
}

/* ---- where a rank listens ---- */

/* The address of this host by which the master is reached. */
static int local_ip(const char *master, char *ip, size_t size)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_DGRAM }, *found;
	struct sockaddr_in own;
	socklen_t length = sizeof(own);
	CLEANUP(close) int fd = -1;
	int rc = getaddrinfo(master, "21017", &hints, &found);

	if (rc) {
		log_warn("%s: %s", master, gai_strerror(rc));
		return -EADDRNOTAVAIL;
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	rc = fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) ||
	     getsockname(fd, (struct sockaddr *)&own, &length) ? -EADDRNOTAVAIL : 0;
	freeaddrinfo(found);
	if (!rc)
		inet_ntop(AF_INET, &own.sin_addr, ip, (socklen_t)size);
	return rc;
}

static int bind_port(struct engine *e, const char *ip, unsigned port)
{
	char address[96];

	snprintf(address, sizeof(address), "tcp://%s:%u", ip, port);
	return node_open_messages(e, address);
}

static int bind_zero(struct engine *e, const char *ip)
{
	unsigned port = e->launch.port ? e->launch.port : PORT_FIRST;
	unsigned last = e->launch.port ? e->launch.port : PORT_LAST;
	int rc = -EADDRINUSE;

	for (; port <= last && rc == -EADDRINUSE; port++)
		rc = bind_port(e, ip, port);
	return rc;
}

int join_bind(struct engine *e)
{
	const char *master = e->launch.master_addr[0] ? e->launch.master_addr : "127.0.0.1";
	char ip[INET_ADDRSTRLEN];
	int rc;

	if (e->message_ops != &transport_zmq)
		return node_open_messages(e, NULL);
	rc = local_ip(master, ip, sizeof(ip));
	if (!rc)
		rc = e->rank ? bind_port(e, ip, 0) : bind_zero(e, ip);
	if (rc)
		log_warn("cannot listen on this host's address towards %s: %s", master, strerror(-rc));
	return rc;
}

/* ---- rank 0 publishes the job ---- */

static int zero_key(struct engine *e, char *path, size_t size)
{
	char why[256];
	int rc;

	path[0] = '\0';
	if (e->launch.plain || e->message_ops != &transport_zmq)
		return 0;
	if (e->launch.key_file[0]) {
		snprintf(path, size, "%s", e->launch.key_file);
		rc = keyfile_load(path, e->key, why, sizeof(why));
		if (rc)
			log_warn("%s", why);
	} else {
		rc = keyfile_create(e->job, NULL, path, size, e->key);
		if (rc)
			log_warn("cannot make a key file for job %s: %s", e->job, strerror(-rc));
	}
	e->has_key = !rc;
	return rc;
}

static int publish(struct engine *e, const char *key_path)
{
	struct jobfile job = { .world = e->world, .pid = getpid() };
	int rc;

	if (e->message_ops != &transport_zmq)
		return 0;
	snprintf(job.job, sizeof(job.job), "%s", e->job);
	snprintf(job.address, sizeof(job.address), "%.159s", e->address);
	snprintf(job.key_file, sizeof(job.key_file), "%s", key_path);
	machine_start_time(job.pid, &job.start_time);
	rc = jobfile_publish(&job, NULL);
	if (rc)
		log_warn("cannot publish job %s for this user: %s", e->job, strerror(-rc));
	if (!rc && e->launch.rendezvous[0]) {
		rc = jobfile_publish(&job, e->launch.rendezvous);
		if (rc)
			log_warn("%s: %s", e->launch.rendezvous, strerror(-rc));
	}
	return rc;
}

static int open_zero(struct engine *e)
{
	char path[1024];
	const char *address;
	int rc = zero_key(e, path, sizeof(path));

	if (!rc)
		rc = join_bind(e);
	if (rc)
		return rc;
	e->incarnation = e->registry.control->cookie[0];
	address = e->message_ops->address(e->messages);
	snprintf(e->address, sizeof(e->address), "%s", strncmp(address, "tcp://", 6) ? address : address + 6);
	return publish(e, path);
}

/* ---- opening ---- */

static void become_rank(struct engine *e, const struct launch *launch)
{
	char prefix[32];

	e->is_rank = true;
	e->writable = true;
	e->launch = *launch;
	e->rank = launch->rank;
	e->world = launch->world;
	memcpy(e->job, launch->job, sizeof(e->job));
	e->job_hash = wire_hash(e->job, strlen(e->job));
	snprintf(prefix, sizeof(prefix), "rank %u", e->rank);
	log_set_prefix(prefix);
}

static int start_rank(struct engine *e, const struct launch *launch, const char *seed, bool thread)
{
	int rc = registry_init(&e->registry);

	if (rc)
		return rc;
	become_rank(e, launch);
	edits_init(&e->edits, STAGE_MEM);
	e->own = catalog_new();
	rc = e->own ? join_start_rank(e) : -ENOMEM;
	if (!rc && seed)
		snprintf(e->join->seeds, sizeof(e->join->seeds), "%s", seed);
	if (!rc && !e->rank)
		rc = open_zero(e);
	return !rc && thread ? node_start_thread(e) : rc;
}

int frag_open_over(struct frag **out, const struct launch *launch, const struct transport_ops *messages,
		   const struct transport_ops *memory, const char *seed, bool thread)
{
	struct frag *f = calloc(1, sizeof(*f));
	int rc = f ? node_new(&f->engine, messages, memory) : -ENOMEM;

	if (!rc) {
		rc = start_rank(f->engine, launch, seed, thread);
		if (rc)
			node_free(f->engine);
	}
	if (rc) {
		free(f);
		return rc;
	}
	*out = f;
	return 0;
}

int frag_open(struct frag **out, const struct frag_config *config)
{
	const char *transport = getenv("FRAG_TRANSPORT"), *ptracer = getenv("FRAG_PTRACER");
	bool memory = !transport || strcmp(transport, "zmq");
	struct launch launch;
	char why[256];
	int rc;

	*out = NULL;
	rc = launch_read(&launch, config, why, sizeof(why));
	if (rc) {
		log_warn("not attached: %s", why);
		return rc;
	}
	if (atomic_flag_test_and_set(&opened)) {
		log_warn("not attached: this process has called frag_open already");
		return -EBUSY;
	}
	if (ptracer && !strcmp(ptracer, "any")) /* where Yama is: lets observers of this user read us */
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	rc = frag_open_over(out, &launch, &transport_zmq, memory ? &transport_host : NULL, NULL, true);
	if (rc) {
		atomic_flag_clear(&opened);
		log_warn("not attached: %s; training goes on without fragfs", strerror(-rc));
		return rc;
	}
	(*out)->only = true;
	return 0;
}

static void leave(struct engine *e)
{
	atomic_store(&e->registry.control->phase, CONTROL_CLOSED);
	if (!e->rank && e->message_ops == &transport_zmq)
		jobfile_remove(e->job);
}

void frag_close(struct frag *f)
{
	struct engine *e = frag_engine(f);

	if (!e)
		return; /* a forked child's copy stays as it is: nothing of it may be touched */
	leave(e);
	node_free(e);
	if (f->only)
		atomic_flag_clear(&opened);
	free(f);
}

int frag_rank(const struct frag *f)
{
	struct engine *e = frag_engine(f);

	return e ? (int)e->rank : -EINVAL;
}

int frag_world(const struct frag *f)
{
	struct engine *e = frag_engine(f);

	return e ? (int)e->world : -EINVAL;
}

const char *frag_address(const struct frag *f)
{
	struct engine *e = frag_engine(f);
	const char *address = NULL;

	if (!e)
		return NULL;
	pthread_mutex_lock(&e->lock);
	if (e->ready || !e->rank)
		address = e->address;
	pthread_mutex_unlock(&e->lock);
	return address;
}
