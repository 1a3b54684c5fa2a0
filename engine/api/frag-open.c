/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/machine.h"
#include "engine/base/thread.h"
#include "engine/job/join.h"
#include "engine/job/listen.h"
#include "engine/launch/jobfile.h"
#include "engine/launch/keyfile.h"
#include "engine/launch/resolver.h"
#include "engine/live/live.h"
#include "engine/live/loop.h"
#include "engine/node/fabric.h"
#include "engine/rank/swap-text.h"
#include "engine/rank/swapped-params.h"
#include "engine/serve/serve-pending.h"
#include "engine/serve/serve.h"
#include "engine/swap/swapper.h"
#include "engine/transport/transport-address.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

/* bytes that edits may stage on a rank */
static const uint64_t STAGE_MEM = (uint64_t)4 << 30;
static const uint64_t VIEW_MEM = (uint64_t)2 << 30;    /* default of FRAG_VIEW_MEM */
static const uint64_t GATHER_MEM = (uint64_t)64 << 20; /* default of FRAG_GATHER_MEM */

static atomic_flag opened = ATOMIC_FLAG_INIT;

const char *frag_error(void)
{
	return log_take_reason();
}

const char *frag_version(void)
{
	return PACKAGE_VERSION;
}

/* ---- rank 0 publishes the job ---- */

/* Finds the job's key: that of FRAG_KEY_FILE; else that of the job file `left` (NULL: none) by
 * a killed process of this rank 0, which live ranks still have; else a new one.  Fills path
 * with the key file's.
 */
static int zero_key(struct engine *e, const struct jobfile *left, char *path, size_t size)
{
	char why[256];
	int rc;

	path[0] = '\0';
	if (e->launch.plain || e->messages.ops != &transport_zmq)
		return 0;
	if (e->launch.key_file[0]) {
		snprintf(path, size, "%s", e->launch.key_file);
		rc = keyfile_load(path, e->job.key.bytes, NULL, why, sizeof(why));
		if (rc)
			log_warn("%s", why);
	} else if (left && *left->key_file &&
		   !keyfile_load(left->key_file, e->job.key.bytes, NULL, why, sizeof(why))) {
		snprintf(path, size, "%s", left->key_file);
		rc = 0;
	} else {
		rc = keyfile_create(e->job.name, NULL, path, size, e->job.key.bytes);
		if (rc)
			log_warn("cannot make a key file for job %s: %s", e->job.name,
				 strerror(-rc));
	}
	e->job.key.is_there = !rc;
	return rc;
}

static void unpublish(const struct engine *e)
{
	if (!e->rank && e->messages.ops == &transport_zmq)
		jobfile_remove(e->job.name);
}

static int publish(struct engine *e, const char *key_path)
{
	struct jobfile job = { .world = e->world, .pid = getpid() };
	int rc;

	if (e->messages.ops != &transport_zmq)
		return 0;
	snprintf(job.job, sizeof(job.job), "%s", e->job.name);
	snprintf(job.address, sizeof(job.address), "%.159s", e->job.address);
	snprintf(job.key_file, sizeof(job.key_file), "%s", key_path);
	machine_start_time(job.pid, &job.start_time);
	rc = jobfile_publish(&job, NULL);
	if (rc)
		log_warn("cannot publish job %s for this user: %s", e->job.name, strerror(-rc));
	if (!rc && e->launch.rendezvous[0]) {
		rc = jobfile_publish(&job, e->launch.rendezvous);
		if (rc) {
			log_warn("%s: %s", e->launch.rendezvous, strerror(-rc));
			unpublish(e);
		}
	}
	return rc;
}

/* Refuses the name of a job that runs: this one would take its files, and its ranks and mounts
 * would come to this one.
 * -EEXIST.
 */
static int check_name_free(const struct engine *e)
{
	struct jobfile other;

	if (e->messages.ops != &transport_zmq || jobfile_find(e->job.name, &other) ||
	    other.pid == getpid())
		return 0;
	log_warn("job %s runs already, with process %d at %s: give each a FRAG_JOB_ID of its "
		 "own",
		 e->job.name, (int)other.pid, other.address);
	return -EEXIST;
}

/* Warns of the other machine's job, which may run: no process of it can be looked for here. */
static void warn_of_machine(const struct jobfile *left)
{
	log_warn("job %s has a file of another machine, of process %d at %s, which is "
		 "replaced: if that job still runs, give each a FRAG_JOB_ID of its own",
		 left->job, (int)left->pid, left->address);
}

static int listen_as_zero(struct engine *e, const char *before)
{
	char ip[RESOLVER_IP] = "";
	int rc = e->messages.ops == &transport_zmq ? resolver_wait(listen_master(e), ip) : 0;

	if (!rc)
		rc = listen_open(e, ip, before);
	if (rc)
		log_warn("cannot listen on this host's address towards %s: %s",
			 listen_master(e),
			 rc == -ENOENT ? "no such host is known" : strerror(-rc));
	return rc;
}

static int open_zero(struct engine *e)
{
	char path[1024];
	struct jobfile left;
	bool is_left = e->messages.ops == &transport_zmq && !jobfile_left(e->job.name, &left);
	int rc = check_name_free(e);

	if (is_left && !left.is_of_here)
		warn_of_machine(&left);
	is_left = is_left && left.world == e->world;
	if (!rc)
		rc = zero_key(e, is_left ? &left : NULL, path, sizeof(path));
	if (!rc)
		rc = listen_as_zero(e, is_left ? left.address : "");
	if (rc)
		return rc;
	e->job.incarnation = e->registry.control->cookie[0];
	snprintf(e->job.address, sizeof(e->job.address), "%s",
		 transport_address_shown(e->messages.ops->address(e->messages.transport)));
	rc = publish(e, path);
	if (e->messages.ops == &transport_zmq)
		jobfile_sweep(); /* publish wrote the file of a job taken over anew: it stays */
	return rc;
}

/* ---- opening ---- */

static uint64_t memory(const char *name, uint64_t usual)
{
	const char *text = env_text(name);
	uint64_t bytes;

	if (!text)
		return usual;
	if (bytes_parse(text, &bytes))
		return bytes;
	log_warn("%s=%s is no number of bytes (K, M, G)", name, text);
	return usual;
}

static void become_rank(struct engine *e, const struct launch *launch)
{
	e->is_rank = true;
	e->write.allowed = true;
	e->launch = *launch;
	e->rank = launch->rank;
	e->world = launch->world;
	memcpy(e->job.name, launch->job, sizeof(e->job.name));
	e->job.hash = wire_hash(e->job.name, strlen(e->job.name));
	log_set_rank(e->rank);
}

/* ---- states on NVMe ---- */

static void name_range(void *owner, const struct swapper_state *s, uint64_t from, uint64_t to,
		       char *text, size_t size)
{
	struct engine *e = owner;

	swap_text_range(&e->registry, e->own, e->rank, s, from, to, text, size);
}

/* Logs the settings in force, whichever source they come from. */
static void tell_swapper(struct engine *e)
{
	struct swapper_figures f;

	swapper_figures(e->registry.swapper, &f);
	log_info("swap: %s by %s: %u requests of %u bytes at once; %u buffers of %llu bytes%s; "
		 "sweeps read ahead: %s, write behind: %s; states of less than %llu bytes stay "
		 "in memory",
		 e->launch.swap.dir, f.disk, f.depth, f.chunk, f.pinned.count,
		 (unsigned long long)f.pinned.size, f.pinned.locked ? ", locked" : "",
		 f.ahead ? "yes" : "no", f.behind ? "yes" : "no", (unsigned long long)f.least);
}

static int open_swapper(struct engine *e)
{
	const struct swap_config *c = &e->launch.swap;
	char name[SWAP_NAME_MAX + 1], why[1400];
	struct swapper_options options = { .dir = c->dir,
					   .name = name,
					   .capacity = c->max,
					   .budget = c->pinned,
					   .slice = c->slice,
					   .spare = c->pinned,
					   .least = c->least,
					   .chunk = c->chunk,
					   .depth = c->depth,
					   .threads = c->threads,
					   .unlocked = c->unlocked,
					   .no_ahead = c->no_ahead,
					   .no_behind = c->no_behind,
					   .debug = c->debug,
					   .name_range = name_range,
					   .owner = e };
	int rc, node;

	if (!c->dir[0])
		return 0;
	rc = swap_file_make_dir(c->dir);
	if (rc) {
		log_warn("no states on NVMe (%s): the folder %s: %s", c->by, c->dir,
			 strerror(-rc));
		return rc;
	}
	node = machine_disk_node("/sys", c->dir);
	options.on_node = node >= 0;
	options.node = node < 0 ? 0 : (unsigned)node;
	snprintf(name, sizeof(name), "%s.rank%u.swap", e->job.name, e->rank);
	rc = swapper_open(&e->registry.swapper, &options, why, sizeof(why));
	if (rc) {
		log_warn("no states on NVMe (%s): %s", c->by, why);
		return rc;
	}
	tell_swapper(e);
	return serve_pending_init(e);
}

static int start_rank(struct engine *e, const struct launch *launch, const char *seed,
		      bool thread)
{
	int rc = registry_init(&e->registry);

	if (rc)
		return rc;
	become_rank(e, launch);
	fabric_open(e);
	view_owner_init(&e->view_owner, memory("FRAG_VIEW_MEM", VIEW_MEM));
	e->trainer->gather_mem = memory("FRAG_GATHER_MEM", GATHER_MEM);
	e->own = catalog_new();
	rc = participant_init(&e->participant, STAGE_MEM);
	if (!rc)
		rc = e->own ? open_swapper(e) : -ENOMEM;
	if (!rc)
		rc = join_start_rank(e, seed);
	if (!rc && !e->rank)
		rc = open_zero(e);
	if (rc || !thread)
		return rc;
	rc = loop_start_thread(e);
	if (rc)
		unpublish(e);
	return rc;
}

int api_open_over(struct frag **out, const struct launch *launch,
		  const struct transport_ops *messages, const struct transport_ops *memory,
		  const char *seed, bool thread)
{
	struct frag *f = calloc(1, sizeof(*f));
	int rc = f ? loop_new(&f->engine, &live_ops, messages, memory) : -ENOMEM;

	if (!rc) {
		f->engine->trainer = &f->trainer;
		rc = start_rank(f->engine, launch, seed, thread);
		if (rc)
			loop_free(f->engine);
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
	rc = thread_bind(launch.is_bound ? &launch.bound : NULL);
	if (rc) {
		atomic_flag_clear(&opened);
		log_warn("not attached: FRAG_BIND=%s: %s", getenv("FRAG_BIND"),
			 rc == -EINVAL ? "this process may use none of these processors"
				       : strerror(-rc));
		return rc;
	}
	/* Yama lets only named processes read another: here all of this user */
	if (launch.any_reads)
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	rc = api_open_over(out, &launch, &transport_zmq,
			   launch.no_memory ? NULL : &transport_host, NULL, true);
	if (rc) {
		atomic_flag_clear(&opened);
		log_warn("not attached: %s", strerror(-rc));
		return rc;
	}
	(*out)->only = true;
	return 0;
}

static void leave(struct engine *e)
{
	atomic_store(&e->registry.control->phase, CONTROL_CLOSED);
	unpublish(e);
}

void frag_close(struct frag *f)
{
	struct engine *e = api_engine(f);

	if (!e)
		return; /* a forked child's copy stays as it is: nothing of it may be touched */
	frag_sweep_end(f->sweep);
	api_sweep_forget(f);
	swapped_params_leave(f->trainer.swapped_params);
	leave(e);
	pthread_mutex_lock(&e->lock);
	serve_tell_asked(e);
	pthread_mutex_unlock(&e->lock);
	loop_free(e);
	/* the engine has ended: no reader is left */
	swapped_params_free(f->trainer.swapped_params);
	api_hypers_free(f);
	if (f->only)
		atomic_flag_clear(&opened);
	free(f->fetches);
	free(f);
}

int frag_rank(const struct frag *f)
{
	struct engine *e = api_engine(f);

	return e ? (int)e->rank : -EINVAL;
}

int frag_world(const struct frag *f)
{
	struct engine *e = api_engine(f);

	return e ? (int)e->world : -EINVAL;
}

int frag_wait_ready(struct frag *f, unsigned timeout_ms)
{
	struct engine *e = api_engine(f);
	uint64_t deadline = monotonic_ms() + timeout_ms;

	if (!e)
		return -EINVAL;
	LOCKED(&e->lock);
	return join_wait(e, deadline);
}

const char *frag_address(const struct frag *f)
{
	struct engine *e = api_engine(f);
	const char *address = NULL;

	if (!e)
		return NULL;
	pthread_mutex_lock(&e->lock);
	if (e->job.ready || !e->rank)
		address = e->job.address;
	pthread_mutex_unlock(&e->lock);
	return address;
}
