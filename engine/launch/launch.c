/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/launch/launch.h"

#include "engine/base/log.h"
#include "engine/base/machine.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Launchers' variables for a process's rank and the number of ranks; the first of several names
 * that is set counts.
 */
static const struct launcher {
	const char *rank;
	const char *world[4];
} launchers[] = {
	{ "FRAG_RANK", { "FRAG_WORLD_SIZE" } }, /* or any other row's number of ranks */
	{ "RANK", { "WORLD_SIZE" } },
	{ "OMPI_COMM_WORLD_RANK", { "OMPI_COMM_WORLD_SIZE" } },
	{ "PMIX_RANK", { "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS" } },
	{ "PMI_RANK", { "PMI_SIZE" } },
	{ "SLURM_PROCID", { "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS" } },
};

struct launch_reader {
	struct launch *l;
	struct frag_config config;
	char *why;
	size_t whysize;
};

static int bad(struct launch_reader *r, const char *fmt, ...) PRINTF(2, 3);

static int bad(struct launch_reader *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->why, r->whysize, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static int number(struct launch_reader *r, const char *name, const char *text, uint64_t max,
		  uint32_t *out)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || value > max)
		return bad(r, "%s=%.40s is not a number up to %llu", name, text,
			   (unsigned long long)max);
	*out = (uint32_t)value;
	return 0;
}

static int copy(struct launch_reader *r, const char *name, const char *text, char *out,
		size_t size)
{
	if (strlen(text) >= size)
		return bad(r, "%s is longer than %zu bytes", name, size - 1);
	snprintf(out, size, "%s", text);
	return 0;
}

/* ---- rank and world ---- */

static const struct launcher *find_launcher(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(launchers); i++)
		if (env_text(launchers[i].rank))
			return &launchers[i];
	return NULL;
}

static const char *world_of(const struct launcher *launcher)
{
	for (size_t i = 0; i < ARRAY_SIZE(launcher->world) && launcher->world[i]; i++)
		if (env_text(launcher->world[i]))
			return launcher->world[i];
	return NULL;
}

/* Returns the name of the variable that has the number of ranks: FRAG_WORLD_SIZE, else the
 * launcher's own; any launcher's, if FRAG_RANK or frag_config gave the rank.
 */
static const char *find_world(const struct launcher *launcher)
{
	const char *name = world_of(&launchers[0]);

	if (name || (launcher && launcher != &launchers[0]))
		return name ? name : world_of(launcher);
	for (size_t i = 1; i < ARRAY_SIZE(launchers) && !name; i++)
		name = world_of(&launchers[i]);
	return name;
}

static int read_rank(struct launch_reader *r, const struct launcher *launcher,
		     const char **name)
{
	*name = r->config.rank ? "rank" : launcher ? launcher->rank : NULL;
	if (!*name)
		return bad(r,
			   "no rank: none of FRAG_RANK, RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK, "
			   "PMI_RANK, SLURM_PROCID is set");
	return number(r, *name, r->config.rank ? r->config.rank : env_text(*name),
		      FRAG_WORLD_MAX - 1, &r->l->rank);
}

static int read_world(struct launch_reader *r, const struct launcher *launcher,
		      const char *rank_name)
{
	const char *name = find_world(r->config.rank ? NULL : launcher);
	const char *own = r->config.rank || launcher == launchers ? NULL : launcher->world[0];

	if (r->config.world) {
		name = "world";
		r->l->world = r->config.world;
	} else if (!name) {
		return bad(r, "%s is set, but not the number of ranks: set %s%sFRAG_WORLD_SIZE",
			   rank_name, own ? own : "", own ? " or " : "");
	} else if (number(r, name, env_text(name), FRAG_WORLD_MAX, &r->l->world)) {
		return -EINVAL;
	}
	if (!r->l->world || r->l->world > FRAG_WORLD_MAX)
		return bad(r, "%s=%u: a job has 1 to %d ranks", name, r->l->world,
			   FRAG_WORLD_MAX);
	if (r->l->rank >= r->l->world)
		return bad(r, "%s=%u is not below %s=%u", rank_name, r->l->rank, name,
			   r->l->world);
	return 0;
}

static int read_place(struct launch_reader *r)
{
	const struct launcher *launcher = find_launcher();
	const char *rank_name;
	int rc = read_rank(r, launcher, &rank_name);

	return rc ? rc : read_world(r, launcher, rank_name);
}

/* ---- where rank 0 is ---- */

static bool is_host(const char *text)
{
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && !strchr(".-_", *text))
			return false;
	return true;
}

static int read_master(struct launch_reader *r)
{
	static const char *const names[] = { "FRAG_MASTER_ADDR", "MASTER_ADDR",
					     "SLURM_LAUNCH_NODE_IPADDR" };
	const char *name = "master_addr", *text = r->config.master_addr;

	for (size_t i = 0; i < ARRAY_SIZE(names) && !text; i++)
		if ((text = env_text(names[i])))
			name = names[i];
	if (!text)
		return 0;
	if (!is_host(text))
		return bad(r, "%s=%.100s is not a host's name or IPv4 address", name, text);
	return copy(r, name, text, r->l->master_addr, sizeof(r->l->master_addr));
}

static int read_port(struct launch_reader *r)
{
	const char *text = env_text("FRAG_PORT");
	uint32_t port = r->config.port;

	if (!port && text && number(r, "FRAG_PORT", text, 65535, &port))
		return -EINVAL;
	r->l->port = (uint16_t)port;
	return 0;
}

static int read_rendezvous(struct launch_reader *r)
{
	const char *text = env_text("FRAG_RDZV");

	if (!text)
		return 0;
	if (strncmp(text, "file:", 5) || !text[5])
		return bad(r, "FRAG_RDZV=%.100s is not file:PATH", text);
	return copy(r, "FRAG_RDZV", text + 5, r->l->rendezvous, sizeof(r->l->rendezvous));
}

/* ---- the job id, also a file's name ---- */

static int take_job(struct launch_reader *r, const char *name, const char *text)
{
	if (*text == '.')
		return bad(r, "%s=%.100s begins with a dot", name, text);
	for (const char *c = text; *c; c++)
		if (*c == '/' || (unsigned char)*c < ' ' || *c == 0x7f)
			return bad(r, "%s has a slash or a control character", name);
	return copy(r, name, text, r->l->job, sizeof(r->l->job));
}

/* Makes a launcher's id a file name: other characters become %XX. */
static int adapt_job(struct launch_reader *r, const char *name, const char *text)
{
	const char *c = text;
	size_t n = 0;

	for (; *c && n + 4 <= sizeof(r->l->job); c++) { /* %XX and the NUL */
		unsigned char byte = (unsigned char)*c;
		bool plain = isalnum(byte) || (*c == '.' && n) || strchr("_-+=:,@", *c);

		n += (size_t)snprintf(r->l->job + n, 4, plain ? "%c" : "%%%02X", byte);
	}
	return *c ? bad(r, "%s is too long", name) : 0;
}

static int job_of_port(struct launch_reader *r)
{
	const char *host = r->l->master_addr[0] ? r->l->master_addr : "localhost";
	const char *port = env_text("MASTER_PORT");
	char text[256];

	if (!port)
		port = env_text("FRAG_PORT");
	if (port)
		snprintf(text, sizeof(text), "%s-%.8s", host, port);
	else if (r->l->port)
		snprintf(text, sizeof(text), "%s-%u", host, r->l->port);
	else
		snprintf(text, sizeof(text), "default");
	return adapt_job(r, "MASTER_ADDR", text);
}

static int job_of_slurm(struct launch_reader *r, const char *job)
{
	const char *step = env_text("SLURM_STEP_ID");
	char text[256];

	snprintf(text, sizeof(text), "%.100s%s%.100s", job, step ? "." : "", step ? step : "");
	return adapt_job(r, "SLURM_JOB_ID", text);
}

static int read_job(struct launch_reader *r)
{
	static const char *const names[] = { "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE",
					     "OMPI_MCA_ess_base_jobid" };
	const char *text;

	if (r->config.job && *r->config.job)
		return take_job(r, "job", r->config.job);
	if ((text = env_text("FRAG_JOB_ID")))
		return take_job(r, "FRAG_JOB_ID", text);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if ((text = env_text(names[i])) && strcmp(text, "none"))
			return adapt_job(r, names[i], text);
	if ((text = env_text("SLURM_JOB_ID")))
		return job_of_slurm(r, text);
	return job_of_port(r);
}

/* ---- the rest ---- */

static int read_key(struct launch_reader *r)
{
	const char *plain = env_text("FRAG_PLAIN"), *text = r->config.key_file;

	if (plain && strcmp(plain, "0") && strcmp(plain, "1"))
		return bad(r, "FRAG_PLAIN=%.40s is neither 0 nor 1", plain);
	r->l->plain = plain && *plain == '1';
	if (!text)
		text = env_text("FRAG_KEY_FILE");
	return text ? copy(r, "FRAG_KEY_FILE", text, r->l->key_file, sizeof(r->l->key_file))
		    : 0;
}

int launch_host(char host[MACHINE_ID])
{
	const char *text = env_text("FRAG_HOST");

	if (!text)
		machine_id(host);
	else if (strlen(text) < MACHINE_ID)
		strcpy(host, text);
	else
		return -EINVAL;
	return 0;
}

static int read_host(struct launch_reader *r)
{
	return launch_host(r->l->host)
		       ? bad(r, "FRAG_HOST is longer than %d characters", MACHINE_ID - 1)
		       : 0;
}

static int read_word(struct launch_reader *r, const char *name, const char *word, bool *is_said)
{
	const char *text = env_text(name);

	*is_said = text && !strcmp(text, word);
	return !text || *is_said ? 0 : bad(r, "%s=%.40s is not %s", name, text, word);
}

static int read_bulk(struct launch_reader *r)
{
	const char *text = env_text("FRAG_BULK");

	r->l->bulk = !text || !strcmp(text, "tls");
	if (r->l->bulk || !strcmp(text, "zmq"))
		return 0;
	return bad(r, "FRAG_BULK=%.40s is neither tls nor zmq", text);
}

static int read_ways(struct launch_reader *r)
{
	int rc = read_word(r, "FRAG_TRANSPORT", "zmq", &r->l->no_memory);

	if (!rc)
		rc = read_bulk(r);
	if (!rc)
		rc = read_word(r, "FRAG_PTRACER", "any", &r->l->any_reads);
	return rc ? rc : read_word(r, "FRAG_GATHER", "host", &r->l->gather_by_host);
}

static int read_swap(struct launch_reader *r)
{
	return swap_config_read(&r->l->swap, &r->config, r->why, r->whysize);
}

/* Reads FRAG_BIND.  "disk" binds nothing if the disk's NUMA node is not known. */
static int read_bound(struct launch_reader *r)
{
	const char *text = env_text("FRAG_BIND"), *dir = r->l->swap.dir;
	char why[128];
	int node;

	if (!text)
		return 0;
	r->l->is_bound = true;
	if (strcmp(text, "disk") != 0) {
		if (!cpus_parse(&r->l->bound, text, why, sizeof(why)))
			return 0;
		return bad(r, "FRAG_BIND=%s", why);
	}
	node = *dir ? machine_disk_node("/sys", dir) : -ENOENT;
	if (node >= 0 && !machine_node_cpus("/sys", (unsigned)node, &r->l->bound))
		return 0;
	r->l->is_bound = false;
	log_warn("FRAG_BIND=disk: %s: threads are not bound",
		 *dir ? "the disk's NUMA node is not known" : "no states are on NVMe");
	return 0;
}

static int read_fabric(struct launch_reader *r)
{
	return fabric_config_read(&r->l->fabric, r->why, r->whysize);
}

int launch_read(struct launch *l, const struct frag_config *config, char *why, size_t whysize)
{
	static int (*const steps[])(struct launch_reader *) = {
		read_place, read_master, read_port, read_rendezvous, read_job,   read_key,
		read_host,  read_ways,   read_swap, read_bound,      read_fabric
	};
	struct launch launch = { .rank = 0 };
	struct launch_reader r = { .l = &launch, .why = why, .whysize = whysize };
	int rc = 0;

	if (config) /* as much as the frag.h has that the caller was compiled with */
		memcpy(&r.config, config, u64_min(config->size, sizeof(r.config)));
	for (size_t i = 0; i < ARRAY_SIZE(steps) && !rc; i++)
		rc = steps[i](&r);
	if (!rc)
		*l = launch;
	return rc;
}
