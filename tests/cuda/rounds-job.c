/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* One rank of a job whose state is on devices, by the CUDA runtime's usual name: it fetches and
 * gathers the state while it passes boundaries, compares, and says how its devices are
 * connected.
 */

#include "engine/api/api.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/rounds.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
	NUMEL = 4099,
	LARGE = 5 << 20, /* more than one window of bytes that are scattered */
	ROOT = 1,
	BOUNDARIES = 400,
	WAIT_MS = 30000,
	TICK_MS = 10,
	TO_DEVICE = 1,
	TO_HOST = 2
};

static int (*cuda_malloc)(void **memory, size_t size);
static int (*cuda_memcpy)(void *to, const void *from, size_t size, int how);
static int (*cuda_set_device)(int device);
static float host[NUMEL + 64];

static int die(const char *what, int rc)
{
	fprintf(stderr, "rounds-job: %s: %d\n", what, rc);
	exit(1);
}

static void check(const char *what, int rc)
{
	if (rc)
		die(what, rc);
}

static void load(void)
{
	void *library = dlopen("libcudart.so.13", RTLD_NOW);

	if (!library)
		die(dlerror(), 0);
	*(void **)&cuda_malloc = dlsym(library, "cudaMalloc");
	*(void **)&cuda_memcpy = dlsym(library, "cudaMemcpy");
	*(void **)&cuda_set_device = dlsym(library, "cudaSetDevice");
}

static void *on_device(uint64_t numel)
{
	void *memory;

	check("cudaMalloc", cuda_malloc(&memory, numel * sizeof(float)));
	return memory;
}

/* Element i of the state is i. */
static void expect(const char *what, const void *device)
{
	check("cudaMemcpy", cuda_memcpy(host, device, NUMEL * sizeof(float), TO_HOST));
	for (int i = 0; i < NUMEL; i++)
		if (host[i] != (float)i)
			die(what, i);
	printf("%s\n", what);
}

static int describe(struct frag *f, const char *name, uint64_t numel)
{
	struct frag_tensor w = {
		.size = sizeof(w), .name = name, .dtype = FRAG_BF16, .ndim = 1, .shape = &numel
	};
	int param = frag_param(f, &w);

	if (frag_group(f, &param, 1,
		       &(struct frag_zero){ .size = sizeof(struct frag_zero), .stage = 2 }) < 0)
		die("frag_group", 0);
	return param;
}

static void keep(struct frag *f, int param)
{
	uint64_t numel = frag_partition_numel(f, 0, 0);
	struct frag_fragment at;
	void *memory = on_device(numel);

	check("frag_fragment", frag_fragment(f, param, &at));
	for (uint64_t i = 0; i < at.numel; i++)
		host[at.partition_offset + i] = (float)(at.param_offset + i);
	check("cudaMemcpy", cuda_memcpy(memory, host, numel * sizeof(float), TO_DEVICE));
	check("frag_state_keep", frag_state_keep(f, 0, 0, "exp_avg", FRAG_F32, memory));
}

static void say(struct frag *f)
{
	pthread_mutex_lock(&f->engine->lock);
	rounds_report(f->engine, stdout);
	pthread_mutex_unlock(&f->engine->lock);
}

static void until_connected(struct engine *e)
{
	uint64_t deadline = monotonic_ms() + WAIT_MS;

	pthread_mutex_lock(&e->lock);
	while (e->rounds.communicator && !communicator_number(e) && monotonic_ms() < deadline)
		node_wait(e, monotonic_ms() + TICK_MS);
	pthread_mutex_unlock(&e->lock);
}

/* All pass as many boundaries, together. */
static void train(struct frag *f, int param, void *out)
{
	int number = frag_fetch(f, param, "exp_avg", out, NUMEL * sizeof(float));
	bool fetched = false;

	for (int i = 0; i < BOUNDARIES; i++) {
		check("frag_safe_point", frag_safe_point(f));
		check("frag_barrier", frag_barrier(f, WAIT_MS));
		if (fetched || frag_fetched(f, number))
			continue;
		expect("fetched", out);
		fetched = true;
	}
	if (!fetched)
		die("nothing was fetched", number);
}

/* ---- what is scattered ---- */

/* Element i is i + more. */
static void fill(float *value, int more)
{
	for (int i = 0; i < LARGE; i++)
		value[i] = (float)(i + more);
}

/* This rank's last element is what it ought to be, and was not before. */
static bool has_come(const float *memory, const struct frag_fragment *at, int more)
{
	float last;

	check("cudaMemcpy", cuda_memcpy(&last, memory + at->partition_offset + at->numel - 1,
					sizeof(last), TO_HOST));
	return last == (float)(at->param_offset + at->numel - 1 + (uint64_t)more);
}

static void expect_large(struct frag *f, int large, int more)
{
	CLEANUP(free) float *got = malloc(LARGE * sizeof(*got));

	check("frag_get", frag_get(f, large, "exp_avg", got, LARGE * sizeof(*got)));
	for (int i = 0; i < LARGE; i++)
		if (got[i] != (float)(i + more))
			die("scattered", i);
}

/* All apply it at the same boundary. */
static void scatter(struct frag *f, int large, const float *memory, int root, const void *value)
{
	struct frag_fragment at;
	int i = 0;

	check("frag_fragment", frag_fragment(f, large, &at));
	check("frag_scatter",
	      frag_scatter(f, large, "exp_avg", root, value, LARGE * sizeof(float), WAIT_MS));
	while (!has_come(memory, &at, root) && i++ < BOUNDARIES) {
		check("frag_safe_point", frag_safe_point(f));
		check("frag_barrier", frag_barrier(f, WAIT_MS));
	}
	expect_large(f, large, root);
}

/* From a device; from the host of a rank that has nothing of the second window. */
static void scatter_both(struct frag *f, int large, const float *memory)
{
	CLEANUP(free) float *bytes = malloc(LARGE * sizeof(*bytes));
	void *device = on_device(LARGE);

	fill(bytes, ROOT);
	check("cudaMemcpy", cuda_memcpy(device, bytes, LARGE * sizeof(float), TO_DEVICE));
	scatter(f, large, memory, ROOT, device);
	fill(bytes, 0);
	scatter(f, large, memory, 0, bytes);
	printf("scattered\n");
}

int main(void)
{
	struct frag_devices devices = { .size = sizeof(devices), .timeout_ms = WAIT_MS };
	struct frag *f;
	void *out, *memory;
	int param, large;

	load();
	check("frag_open", frag_open(&f, NULL));
	devices.number = frag_rank(f) % 2;
	check("cudaSetDevice", cuda_set_device(devices.number));
	param = describe(f, "w", NUMEL);
	large = describe(f, "large", LARGE);
	check("frag_devices", frag_devices(f, &devices));
	keep(f, param);
	memory = on_device(frag_partition_numel(f, 1, 0));
	check("frag_state_keep", frag_state_keep(f, 1, 0, "exp_avg", FRAG_F32, memory));
	out = on_device(NUMEL);
	check("frag_ready", frag_ready(f));
	check("frag_barrier", frag_barrier(f, WAIT_MS));
	if (!getenv("TEST_NOT_CONNECTED"))
		until_connected(f->engine);
	/* a rank that is not yet connected refuses its part in a round */
	check("frag_barrier", frag_barrier(f, WAIT_MS));
	train(f, param, out);
	check("frag_gather",
	      frag_gather(f, param, "exp_avg", out, NUMEL * sizeof(float), WAIT_MS));
	expect("gathered", out);
	scatter_both(f, large, memory);
	say(f);
	check("frag_barrier", frag_barrier(f, WAIT_MS));
	frag_close(f);
	return 0;
}
