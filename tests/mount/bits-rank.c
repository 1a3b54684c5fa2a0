/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/mount/bits.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A buffer of the rank: a partition of a group's key, a fragment of one parameter (param >= 0),
 * or its low-precision parameter or piece.
 */
struct buffer {
	uint32_t key;
	uint32_t sub;
	int param;
	uint64_t numel;
	uint64_t first; /* lp: element of the parameter that it begins with */
	uint8_t *at;    /* swapped: a copy */
	bool swapped;
};

enum { BUFFERS_MAX = 64 };

struct rank {
	struct bits_job *job;
	uint32_t rank;
	struct frag *f;
	int number[BITS_PARAMS_MAX], group;
	struct buffer buffers[BUFFERS_MAX];
	uint32_t n;
	uint64_t steps;
	bool idle;  /* passes boundaries, so that edits go in */
	bool swaps; /* partitions are on NVMe: FRAG_SWAP_DIR */
};

static void need(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "bits-job: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static struct buffer *add(struct rank *r, struct buffer b, bool library)
{
	if (r->n == BUFFERS_MAX)
		bits_fail("too many buffers");
	if (!library && !(b.at = malloc(b.numel * bits_element(b.key) + 1)))
		bits_fail("no memory");
	r->buffers[r->n] = b;
	return &r->buffers[r->n++];
}

/* ---- describing ---- */

static bool is_cut(const struct rank *r)
{
	return r->job->stage >= 3;
}

static bool is_frozen(const struct rank *r, uint32_t param)
{
	return param >= r->job->nparams - r->job->nfrozen;
}

/* Elements of one rank's piece of the low-precision parameter. */
static uint64_t lp_piece(const struct rank *r, uint32_t param)
{
	const struct bits_param *p = &r->job->params[param];
	struct bits_box box = bits_box(r->job, param, r->rank);
	uint64_t numel = bits_numel(p);
	struct frag_cut cuts[2];

	if (bits_cuts(r->job, param, cuts))
		return bits_box_numel(r->job, param, &box);

	if (r->job->stage == 3)
		return u64_div_ceil(numel, r->job->world);
	return p->ndim ? u64_div_ceil(p->shape[0], r->job->world) * (numel / p->shape[0])
		       : numel;
}

static void add_param(struct rank *r, uint32_t param)
{
	const struct bits_param *p = &r->job->params[param];
	struct frag_tensor t = {
		sizeof(t),          .name = p->name,
		.dtype = FRAG_BF16, .ndim = p->ndim,
		.shape = p->shape,  .flags = is_frozen(r, param) ? FRAG_FROZEN : 0
	};
	struct buffer b = { BITS_LP, .param = (int)param, .numel = bits_numel(p) };
	struct frag_cut cuts[2];

	t.ncuts = bits_cuts(r->job, param, cuts);
	t.cuts = cuts;
	if (is_cut(r) && !is_frozen(r, param)) {
		b.numel = lp_piece(r, param);
		b.first = t.ncuts ? 0 : b.numel * r->rank;
		t.lp_shard = add(r, b, false)->at;
	} else {
		t.lp = add(r, b, false)->at;
	}
	r->number[param] = frag_param(r->f, &t);
	need(r->number[param], "frag_param");
}

static void add_group(struct rank *r)
{
	struct frag_zero zero = { sizeof(zero), .stage = r->job->stage,
				  .sub_group_size = 3000 };

	if (r->job->stage == 4)
		zero = (struct frag_zero){ sizeof(zero), .sharding = FRAG_FSDP2 };
	if (bits_numel(&r->job->params[0]) > 1000000)
		zero.sub_group_size = 0;
	r->group = frag_group(r->f, r->number, r->job->nparams - r->job->nfrozen, &zero);
	need(r->group, "frag_group");
}

/* Each key in another kind of memory. */
static void add_partition(struct rank *r, uint32_t key, uint32_t sub)
{
	struct buffer b = { key, sub,  -1,      frag_partition_numel(r->f, r->group, sub),
			    0,   NULL, r->swaps };
	void *memory;

	if (r->swaps) {
		need(frag_state_swap(r->f, r->group, sub, bits_keys[key], FRAG_F32), "swap");
		add(r, b, false);
		return;
	}
	if (key) {
		need(frag_state_keep(r->f, r->group, sub, bits_keys[key], FRAG_F32,
				     add(r, b, false)->at),
		     "keep");
		return;
	}
	need(frag_state_alloc(r->f, r->group, sub, bits_keys[key], FRAG_F32, &memory), "alloc");
	b.at = memory;
	add(r, b, true);
}

static void add_fragments(struct rank *r, uint32_t key)
{
	struct frag_fragment at;

	for (uint32_t p = 0; p < r->job->nparams; p++) {
		struct buffer b = { key, 0, (int)p, 0, 0, NULL, false };

		if (frag_fragment(r->f, r->number[p], &at))
			continue;
		b.sub = at.sub;
		b.numel = at.numel;
		need(frag_fragment_keep(r->f, r->number[p], bits_keys[key], FRAG_F32,
					add(r, b, false)->at),
		     "frag_fragment_keep");
	}
}

/* ---- what is on NVMe ---- */

/* Into its copy, or from there. */
static void visit(struct rank *r, struct buffer *b, bool write)
{
	struct frag_swept swept = { bits_keys[b->key],
				    write ? FRAG_WRITE_ONLY : FRAG_READ_ONLY };
	struct frag_sweep *sweep;
	uint64_t first, numel;
	void *memory;
	int rc;

	need(frag_sweep_begin(r->f, r->group, b->sub, &swept, 1, &sweep), "frag_sweep_begin");
	while ((rc = frag_sweep_next(sweep, &first, &numel, &memory)) == 1) {
		uint8_t *copy = b->at + first * sizeof(float);

		memcpy(write ? memory : copy, write ? copy : memory, numel * sizeof(float));
	}
	need(rc, "frag_sweep_next");
	frag_sweep_end(sweep);
}

static void load(struct rank *r)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (r->buffers[i].swapped)
			visit(r, &r->buffers[i], false);
}

static void store(struct rank *r)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (r->buffers[i].swapped)
			visit(r, &r->buffers[i], true);
}

/* ---- what a buffer ought to hold ---- */

static void lay(const struct rank *r, const struct buffer *b, uint8_t *to, uint32_t param,
		uint64_t at, uint64_t first, uint64_t n)
{
	uint64_t element = bits_element(b->key);
	const uint8_t *truth = r->job->truth[param][b->key];
	struct bits_box box = bits_box(r->job, param, r->rank);
	struct frag_cut cuts[2];

	if (!bits_cuts(r->job, param, cuts)) {
		memcpy(to + at * element, truth + first * element, n * element);
		return;
	}
	if (n != bits_box_numel(r->job, param, &box))
		bits_fail("a fragment is not as large as its box");
	for (uint64_t i = 0; i < n; i++)
		memcpy(to + (at + i) * element,
		       truth + bits_box_at(r->job, param, &box, i) * element, element);
}

static void draw(const struct rank *r, const struct buffer *b, uint8_t *to)
{
	struct frag_fragment at;
	uint64_t numel;

	memset(to, BITS_PADDING, b->numel * bits_element(b->key));
	if (b->key == BITS_LP) {
		numel = bits_numel(&r->job->params[b->param]);
		if (b->first < numel)
			lay(r, b, to, (uint32_t)b->param, 0, b->first,
			    u64_min(b->numel, numel - b->first));
		return;
	}
	for (uint32_t p = 0; p < r->job->nparams; p++) {
		if ((b->param >= 0 && b->param != (int)p) ||
		    frag_fragment(r->f, r->number[p], &at) || at.sub != b->sub)
			continue;
		lay(r, b, to, p, b->param >= 0 ? 0 : at.partition_offset, at.param_offset,
		    at.numel);
	}
}

/* The others do not wait for it at a barrier. */
static void wait_until_back(struct rank *r)
{
	for (int i = 0; frag_get_bytes(r->f, r->number[0], "fp32") == -EAGAIN; i++) {
		if (i == BITS_WAIT_MS / 5)
			bits_fail("a rank does not come back");
		usleep(5000);
	}
}

static void attach(struct rank *r)
{
	struct frag_config config = { sizeof(config), .world = r->job->world };
	char rank[16], name[64];

	snprintf(rank, sizeof(rank), "%u", r->rank);
	snprintf(name, sizeof(name), "bits-%d", (int)getppid());
	config.rank = rank;
	config.job = name;
	need(frag_open(&r->f, &config), "frag_open");
	r->swaps = getenv("FRAG_SWAP_DIR");
	for (uint32_t p = 0; p < r->job->nparams; p++)
		add_param(r, p);
	add_group(r);
	for (uint32_t k = 0; k < r->job->nkeys; k++) {
		if (r->job->stage == 4 && k == 2) {
			add_fragments(r, k);
			continue;
		}
		for (uint32_t sub = 0; sub < frag_sub_groups(r->f, r->group); sub++)
			add_partition(r, k, sub);
	}
	for (uint32_t i = 0; i < r->n; i++)
		draw(r, &r->buffers[i], r->buffers[i].at);
	store(r);
	need(frag_ready(r->f), "frag_ready");
	if (r->job->shared->dead[r->rank])
		wait_until_back(r);
	else
		need(frag_barrier(r->f, BITS_WAIT_MS), "frag_barrier");
	need(frag_grads_valid(r->f, 1), "frag_grads_valid");
}

static void say(struct rank *r, const struct buffer *b, const char *what, uint64_t at,
		char *answer)
{
	snprintf(answer, BITS_LINE, "rank %u: %s of %s, sub-group %u, byte %llu: %s", r->rank,
		 bits_keys[b->key],
		 b->param >= 0 ? r->job->params[b->param].name : "its partition", b->sub,
		 (unsigned long long)at, what);
}

static uint64_t difference(const uint8_t *a, const uint8_t *b, uint64_t bytes)
{
	uint64_t at = 0;

	while (at < bytes && a[at] == b[at])
		at++;
	return at;
}

static void check(struct rank *r, char *answer)
{
	load(r);
	for (uint32_t i = 0; i < r->n; i++) {
		struct buffer *b = &r->buffers[i];
		uint64_t bytes = b->numel * bits_element(b->key);
		CLEANUP(free) uint8_t *want = malloc(bytes + 1);

		draw(r, b, want);
		if (memcmp(want, b->at, bytes))
			say(r, b, "not what it ought to be", difference(want, b->at, bytes),
			    answer);
	}
}

/* ---- what the mount says of it ---- */

/* The file has just these bytes. */
static void compare_file(struct rank *r, const struct buffer *b, const char *path,
			 const uint8_t *bytes, uint64_t size, char *answer)
{
	CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
	CLEANUP(free) uint8_t *got = malloc(size + 1);
	uint64_t n = 0;
	ssize_t rc = 1;

	if (fd < 0 && errno == ENOENT && !size)
		return;
	while (fd >= 0 && n < size + 1 && (rc = read(fd, got + n, size + 1 - n)) > 0)
		n += (uint64_t)rc;
	if (fd < 0 || rc < 0)
		say(r, b, strerror(errno), n, answer);
	else if (n != size || memcmp(got, bytes, size))
		say(r, b, path, difference(got, bytes, u64_min(n, size)), answer);
}

/* "/" in a name, as the tree writes it. */
static const char *file_name(const char *name, char *out, size_t size)
{
	size_t n = 0;

	for (; *name && n + 4 < size; name++)
		if (*name == '/')
			n += (size_t)snprintf(out + n, size - n, "%%2F");
		else
			out[n++] = *name;
	out[n] = '\0';
	return out;
}

static void view_partition(struct rank *r, const struct buffer *b, const char *mount,
			   char *answer)
{
	char path[512], name[64];
	struct frag_fragment at;

	snprintf(path, sizeof(path), "%.200s/ranks/%u/partitions/%d.%u/%s", mount, r->rank,
		 r->group, b->sub, bits_keys[b->key]);
	compare_file(r, b, path, b->at, b->numel * 4, answer);
	for (uint32_t p = 0; p < r->job->nparams; p++) {
		if (frag_fragment(r->f, r->number[p], &at) || at.sub != b->sub)
			continue;
		snprintf(path, sizeof(path), "%.200s/ranks/%u/params/%s/%s", mount, r->rank,
			 file_name(r->job->params[p].name, name, sizeof(name)),
			 bits_keys[b->key]);
		compare_file(r, b, path, b->at + at.partition_offset * 4, at.numel * 4, answer);
	}
}

static void view_param(struct rank *r, const struct buffer *b, const char *mount, char *answer)
{
	uint64_t numel = bits_numel(&r->job->params[b->param]), n = b->numel;
	char path[512], name[64];

	if (b->key == BITS_LP)
		n = b->first < numel ? u64_min(b->numel, numel - b->first) : 0;
	snprintf(path, sizeof(path), "%.200s/ranks/%u/params/%s/%s", mount, r->rank,
		 file_name(r->job->params[b->param].name, name, sizeof(name)),
		 bits_keys[b->key]);
	compare_file(r, b, path, b->at, n * bits_element(b->key), answer);
}

/* The table of a parameter's pieces has this rank's of fp32, as a slice of each dimension. */
static void view_fragments(struct rank *r, uint32_t param, const char *mount, char *answer)
{
	struct bits_box box = bits_box(r->job, param, r->rank);
	uint64_t numel = bits_box_numel(r->job, param, &box);
	char path[512], name[64], line[512], want[256], got[256];
	unsigned long long of = 0;
	unsigned rank, n = 0;
	FILE *file;

	want[0] = '\0';
	for (uint32_t d = 0, at = 0; d < r->job->params[param].ndim; d++)
		at += (uint32_t)snprintf(want + at, sizeof(want) - at, "%s%llu:%llu",
					 d ? "," : "", (unsigned long long)box.from[d],
					 (unsigned long long)box.to[d]);
	snprintf(path, sizeof(path), "%.200s/params/%s/fragments", mount,
		 file_name(r->job->params[param].name, name, sizeof(name)));
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%u\tfp32\t%*s\t%*s\t%*s\t%255s\t%llu", &rank, got, &of) !=
			    3 ||
		    rank != r->rank)
			continue;
		n += !strcmp(got, want) && of == numel ? 1 : 100;
	}
	if (file)
		fclose(file);
	if (n != (numel > 0))
		snprintf(answer, BITS_LINE,
			 "rank %u: %.120s has no line of %.60s, %llu elements", r->rank, path,
			 want, (unsigned long long)numel);
}

static void views(struct rank *r, const char *mount, char *answer)
{
	struct frag_cut cuts[2];

	for (uint32_t p = 0; p < r->job->nparams; p++)
		if (bits_cuts(r->job, p, cuts))
			view_fragments(r, p, mount, answer);
	load(r);
	for (uint32_t i = 0; i < r->n; i++) {
		if (r->buffers[i].param >= 0)
			view_param(r, &r->buffers[i], mount, answer);
		else
			view_partition(r, &r->buffers[i], mount, answer);
	}
}

/* ---- training: adds 1 to everything; stage 0, where each rank has all ---- */

static void add_one(struct rank *r)
{
	for (uint32_t i = 0; i < r->n; i++) {
		struct buffer *b = &r->buffers[i];

		for (uint64_t at = 0; b->key < BITS_LP && at < b->numel; at++)
			((float *)b->at)[at] += 1;
	}
}

/* Its pieces of a parameter's lp are what fp32 rounds to. */
static const struct buffer *master(const struct rank *r, uint32_t *at, const struct buffer *lp)
{
	struct frag_fragment where;

	for (uint32_t i = 0; i < r->n; i++) {
		if (r->buffers[i].key || frag_fragment(r->f, r->number[lp->param], &where))
			continue;
		*at = (uint32_t)where.partition_offset;
		return &r->buffers[i];
	}
	return NULL;
}

static void round_lp(struct rank *r)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		struct buffer *b = &r->buffers[i];
		const struct buffer *m = b->key == BITS_LP ? master(r, &at, b) : NULL;

		for (uint64_t e = 0; m && e < b->numel; e++)
			((uint16_t *)b->at)[e] = bits_bf16(((const uint32_t *)m->at)[at + e]);
	}
}

/* As gradients summed over all keep ranks together: none is two steps ahead of another. */
static bool may_step(const struct rank *r)
{
	struct bits_shared *s = r->job->shared;

	for (uint32_t i = 0; i < r->job->world; i++)
		if (!s->dead[i] && s->steps[i] < s->steps[r->rank])
			return false;
	return true;
}

static void step(struct rank *r)
{
	need(frag_step_begin(r->f), "frag_step_begin");
	load(r);
	add_one(r);
	store(r);
	round_lp(r);
	need(frag_step_end(r->f), "frag_step_end");
	r->steps--;
	r->job->shared->steps[r->rank]++;
}

/* ---- its orders ---- */

/* As a data loader's: it has what its parent had, and outlives it. */
static void have_child(char *answer)
{
	pid_t pid = fork();

	if (!pid) {
		alarm(60);
		for (;;)
			pause();
	}
	if (pid < 0)
		strcpy(answer, "no child");
}

/* Those that do not know yet that rank 0 is back are told that it is lost. */
static void meet(struct rank *r)
{
	int rc, tries = 0;

	while ((rc = frag_barrier(r->f, BITS_WAIT_MS)) == -EIO && tries++ < BITS_WAIT_MS / 5)
		usleep(5000);
	need(rc, "frag_barrier");
}

static void obey(struct rank *r, char *line, char *answer)
{
	unsigned n;

	strcpy(answer, "ok");
	if (!strncmp(line, "check", 5)) {
		check(r, answer);
	} else if (!strncmp(line, "views ", 6)) {
		views(r, line + 6, answer);
	} else if (!strncmp(line, "meet", 4)) {
		meet(r);
	} else if (sscanf(line, "pass %*u %u", &n) == 1) {
		while (n--)
			need(frag_safe_point(r->f), "frag_safe_point");
	} else { /* fork */
		have_child(answer);
	}
}

static bool get_line(int fd, char *line)
{
	size_t n = 0;

	while (n < BITS_LINE - 1 && read(fd, line + n, 1) == 1) {
		if (line[n++] != '\n')
			continue;
		line[n - 1] = '\0';
		return true;
	}
	return false;
}

/* Idle it passes a boundary each millisecond, and as many as it is told to when it trains. */
int bits_be_rank(struct bits_job *job, uint32_t rank, int in, int out)
{
	struct rank r = { .job = job, .rank = rank, .idle = !job->even };
	struct pollfd p = { .fd = in, .events = POLLIN };
	char line[BITS_LINE], answer[BITS_LINE];

	attach(&r);
	dprintf(out, "%s\n", frag_address(r.f));
	for (;;) {
		if (poll(&p, 1, 1) <= 0) {
			if (r.steps && may_step(&r))
				step(&r);
			else if (!r.steps && r.idle)
				frag_safe_point(r.f);
			continue;
		}
		if (!get_line(in, line))
			break;
		if (!strncmp(line, "train ", 6)) {
			r.steps = strtoull(line + 6, NULL, 10);
			continue;
		}
		obey(&r, line, answer);
		dprintf(out, "%s\n", answer);
	}
	frag_close(r.f);
	for (uint32_t i = 0; i < r.n; i++)
		if (r.buffers[i].key || r.buffers[i].swapped)
			free(r.buffers[i].at);
	return 0;
}
