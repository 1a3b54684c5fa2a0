/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/text.h"

#include "engine/base/one-line.h"
#include "engine/base/text.h"
#include "fs/hyper.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Prints a text, the caller's to free.  NULL: no memory. */
static char *format(const char *fmt, ...) PRINTF(1, 2);
static char *format(const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	return text;
}

size_t text_of_job(const struct engine_job *job, uint32_t id, char out[TEXT_JOB_MAX])
{
	if (id == TEXT_PHASE)
		return (size_t)snprintf(out, TEXT_JOB_MAX, "%s\n", job->phase);
	return (size_t)snprintf(out, TEXT_JOB_MAX, "%" PRIu64 "\n",
				id == TEXT_STEP ? job->step : job->generation);
}

static char *job_text(struct tree *t, uint32_t id)
{
	struct engine_job job;
	char text[TEXT_JOB_MAX];

	engine_job(t->engine, &job);
	text_of_job(&job, id, text);
	return strdup(text);
}

static char *shape_text(const struct engine_param *p)
{
	char dims[FRAG_DIMS_MAX * 22 + 2] = "", *end = dims;

	for (uint32_t i = 0; i < p->ndim && i < FRAG_DIMS_MAX; i++)
		end += sprintf(end, "%s%" PRIu64, i ? " " : "", p->shape[i]);
	return format("%s\n", dims);
}

static char *param_text(struct tree *t, struct node n)
{
	struct engine_param p;

	if (!engine_param(t->engine, n.item, &p))
		return NULL;
	switch (n.slot) {
	case TEXT_SHAPE:
		return shape_text(&p);
	case TEXT_DTYPE:
		return format("%s\n", frag_dtype_name(p.dtype));
	case TEXT_NUMEL:
		return format("%" PRIu64 "\n", p.numel);
	case TEXT_GROUP_INDEX:
		return p.group < 0 ? format("none\n") : format("%u\n", p.position);
	default:
		return p.group < 0 ? format("none\n")
				   : format("%u\n", tree_group_shown(t, (uint32_t)p.group));
	}
}

struct printing {
	FILE *out;
	struct tree *tree;
	const char *key;
	uint32_t ndim;
	bool now;
};

/* Prints a box as slices: "0:4,8:16". */
static void put_box(FILE *out, const uint64_t *box, uint32_t ndim)
{
	for (uint32_t d = 0; d < ndim; d++)
		fprintf(out, "%s%" PRIu64 ":%" PRIu64, d ? "," : "", box[d],
			box[d] + box[ndim + d]);
}

/* Prints the generation, boundary and phase of the rank whose memory this is; inside a step the
 * memory may already be of the next generation.
 */
static void put_moment(const struct printing *p, uint32_t rank)
{
	struct engine_rank r;

	if (p->now && engine_rank(p->tree->engine, rank, &r))
		fprintf(p->out, "\t%" PRIu64 "\t%" PRIu64 "\t%s", r.generation, r.boundary,
			r.state == ENGINE_RANK_LOST ? "lost" : r.phase);
}

static void put_fragment(void *arg, const struct engine_fragment *f)
{
	const struct printing *p = arg;

	fprintf(p->out, "%u\t", f->rank);
	one_line_put(p->out, p->key);
	fprintf(p->out, "\t%s\t", f->tier);
	if (f->file)
		fprintf(p->out, "%s\t%" PRIu64 "\t", f->file, f->base);
	else
		fprintf(p->out, "%u.%u\t%" PRIu64 "\t", f->group, f->sub, f->partition_offset);
	if (f->box)
		put_box(p->out, f->box, p->ndim);
	else
		fprintf(p->out, "%" PRIu64, f->param_offset);
	fprintf(p->out, "\t%" PRIu64, f->numel);
	put_moment(p, f->rank);
	fputc('\n', p->out);
}

static int fragments_text(struct tree *t, struct node n, char **text)
{
	struct engine_address at = { .kind = ENGINE_PARAM, .param = n.item };
	STATE_LIST(list);
	struct engine_param param;
	struct printing p = { .tree = t, .now = tree_node_is_now(n) };
	size_t size;
	int rc = state_list_fill(&list, t->engine, &at);

	if (rc)
		return rc;
	if (!engine_param(t->engine, n.item, &param))
		return -ENOENT;
	p.ndim = param.ndim;
	p.out = open_memstream(text, &size);
	if (!p.out)
		return -ENOMEM;
	fprintf(p.out, "rank\tstate\ttier\t%s\toffset\tparam_offset\tnumel%s\n",
		engine_is_live(t->engine) ? "partition" : "file",
		p.now ? "\tgeneration\tboundary\tphase" : "");
	for (int i = 0; i < list.count; i++) {
		p.key = list.states[i].key;
		if (!(list.states[i].flags & ENGINE_STATE_LP))
			engine_fragments(t->engine, n.item, p.key, put_fragment, &p);
	}
	return text_end(p.out, text) ? 0 : -ENOMEM;
}

static char *rank_state_text(const struct engine_rank *r)
{
	static const char *const names[] = { "unknown", "alive", "lost", "left" };
	char since[32];
	struct tm utc;

	if (r->state == ENGINE_RANK_UNKNOWN || !gmtime_r(&r->since, &utc))
		return format("%s\n", names[r->state]);
	strftime(since, sizeof(since), "%F %T UTC", &utc);
	if (r->state == ENGINE_RANK_ALIVE)
		return format("alive since %s or longer\n", since);
	return format("%s since %s%s%s\n", names[r->state], since, r->why[0] ? ": " : "",
		      r->why);
}

static char *rank_text(struct tree *t, struct node n)
{
	struct engine_rank r;

	if (!engine_rank(t->engine, n.rank, &r))
		return NULL;
	switch (n.slot) {
	case TEXT_RANK_STATE:
		return rank_state_text(&r);
	case TEXT_RANK_ADDRESS:
		return format("%s\n", r.address);
	case TEXT_RANK_PID:
		return format("%" PRId64 "\n", r.pid);
	case TEXT_RANK_SWAP:
		return engine_rank_text(t->engine, n.rank, "swap");
	case TEXT_RANK_PINNED:
		return engine_rank_text(t->engine, n.rank, "pinned");
	case TEXT_RANK_LOG:
		return engine_rank_text(t->engine, n.rank, "log");
	case TEXT_RANK_COMMS:
		return engine_rank_text(t->engine, n.rank, "comms");
	case TEXT_RANK_TIMERS:
		return engine_rank_text(t->engine, n.rank, "timers");
	case TEXT_RANK_ARENA:
		return engine_rank_text(t->engine, n.rank, "arena");
	default:
		return format("%s\n", r.host);
	}
}

/* Lists the ranks of a group.  NULL: no memory. */
static char *ranks_text(const struct engine_group *g)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputs("rank\tshard\treplica\n", out);
	for (uint32_t i = 0; i < g->nranks; i++)
		fprintf(out, "%u\t%u\t%u\n", g->ranks[i], i % g->shards, i / g->shards);
	return text_end(out, &text);
}

/* Prints the loss scale of the group's first live rank; "": its gradients are not valid. */
static char *loss_scale_text(struct tree *t, const struct engine_group *g)
{
	char text[HYPER_TEXT_MAX] = "";
	struct engine_rank r = { .state = ENGINE_RANK_LOST };

	for (uint32_t i = 0; i < g->nranks && r.state == ENGINE_RANK_LOST; i++)
		engine_rank(t->engine, g->ranks[i], &r);
	if (r.state != ENGINE_RANK_LOST && r.grads_valid)
		hyper_format(r.loss_scale, text);
	return strdup(text);
}

/* Returns how the group's ranks lie in the job's device mesh; "": there is no mesh, or the
 * ranks are no group of it.
 */
static const char *mesh_text(struct tree *t, const struct engine_group *g)
{
	enum mesh_kind kind = MESH_DATA;
	struct mesh mesh = t->mesh;
	struct engine_param p;

	if (!mesh.world)
		return "";
	for (uint32_t i = 0; i < g->nparams && kind == MESH_DATA; i++)
		if (engine_param(t->engine, g->params[i], &p) && strstr(p.coordinate, "ep="))
			kind = MESH_EXPERT_DATA;
	for (int data_first = 0; data_first < 2; data_first++) {
		mesh.data_first = data_first;
		if (mesh_has(&mesh, kind, g->ranks, g->nranks))
			return mesh_kind_name(kind);
	}
	return "";
}

static char *group_text(struct tree *t, struct node n)
{
	struct engine_group g;
	const char *mesh;

	if (!engine_group(t->engine, tree_node_group(n), &g))
		return NULL;
	switch (n.slot) {
	case TEXT_GROUP_KIND:
		mesh = mesh_text(t, &g);
		return format("%s%s%s\n", g.kind, *mesh ? " " : "", mesh);
	case TEXT_GROUP_SHARDS:
		return format("%u\n", g.shards);
	case TEXT_GROUP_REPLICAS:
		return format("%u\n", g.replicas);
	case TEXT_GROUP_RANKS:
		return ranks_text(&g);
	case TEXT_GROUP_LOSS_SCALE:
		return loss_scale_text(t, &g);
	default:
		return format("%u\n", g.sub_groups);
	}
}

static char *engine_own_text(struct tree *t, uint32_t id)
{
	static const char *const what[TEXTS] = {
		[TEXT_CONFIG] = "config",   [TEXT_HEALTH] = "health",
		[TEXT_METRICS] = "metrics", [TEXT_INFLIGHT] = "inflight",
		[TEXT_LOG] = "log",         [TEXT_FREEZE] = "freeze",
		[TEXT_CONTROL] = "control", [TEXT_NCCL] = "nccl",
		[TEXT_COMMS] = "comms",     [TEXT_PLACE] = "place",
		[TEXT_LEAVES] = "leaves",   [TEXT_READERS] = "readers",
		[TEXT_SOURCE] = "source",
	};

	if (id == TEXT_VERSION)
		return format("%s\n", frag_version());
	if (id == TEXT_OPTIONS)
		return strdup(t->options);
	return engine_text(t->engine, what[id]);
}

static char *plain_text(struct tree *t, struct node n)
{
	if (n.slot <= TEXT_GENERATION)
		return job_text(t, n.slot);
	if (n.slot < TEXT_FRAGMENTS)
		return param_text(t, n);
	if (n.slot <= TEXT_RANK_ARENA)
		return rank_text(t, n);
	if (n.slot <= TEXT_GROUP_LOSS_SCALE)
		return group_text(t, n);
	return engine_own_text(t, n.slot);
}

int64_t text_build(struct tree *t, struct node n, char **text)
{
	char *made = NULL;
	int rc = 0;

	errno = 0;
	if (n.slot == TEXT_FRAGMENTS)
		rc = fragments_text(t, n, &made);
	else
		made = plain_text(t, n);
	if (!rc && !made)
		rc = errno ? -errno : -ENOMEM;
	if (rc)
		return rc;
	*text = made;
	return (int64_t)strlen(made);
}

bool text_is_costly(struct node n)
{
	return n.kind == NODE_HYPER || n.kind == NODE_EXPORT_FILE ||
	       (n.kind == NODE_TEXT &&
		(n.slot == TEXT_FRAGMENTS ||
		 (n.slot >= TEXT_RANK_SWAP && n.slot <= TEXT_RANK_ARENA) ||
		 n.slot >= TEXT_CONFIG));
}
