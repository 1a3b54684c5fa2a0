/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* storm-job DIR: one rank of a job that trains on devices, by the CUDA runtime's usual name,
 * and fetches and gathers, until DIR/stop is there.  What came is right, and no call takes
 * longer than it may, whatever befalls the others, or NCCL: what DIR/do.RANK says, the stub
 * does, and the file goes.  What it sees it says, and a gather by the communicator with what
 * was in DIR/mark before.
 *
 * exp_avg changes in each step, and is one byte all over; exp_avg_sq does not.  What is
 * scattered to lies in its own state: a rank that was started again has something else there
 * until the next time.
 */

#include "engine/api/api.h"
#include "engine/collective/collective.h"
#include "engine/rank/devices.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/landing.h"
#include "engine/rounds/rounds.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
	RANKS = 3,
	NUMEL = 40000,
	BYTES = NUMEL * 4,
	GATHER_STEPS = 8,
	SCATTER_AT = 4, /* of them */
	BARRIER_STEPS = 16,
	SILENCE_MS = 2000,
	DEVICE_MS =
		30000, /* an edit that a device does not take in time is with some ranks only */
	OPEN_MS = 1000,
	END_MS = 500,
	GATHER_MS = 1000,
	BOUND_MS = 20000,
	MEET_MS = 60000, /* BARRIER_STEPS of the others, whose gathers wait for this rank */
	ERROR = 2
};

static struct {
	int (*malloc)(void **memory, size_t size);
	int (*memset_async)(void *to, int value, size_t size, void *stream);
	int (*stream_create)(void **stream, unsigned flags);
	int (*stream_synchronize)(void *stream);
	int (*set_device)(int device);
} cuda;

static struct {
	void (*break_all)(int error);
	void (*stall)(bool stall);
	void (*hang)(const char *name);
} nccl;

/* What ranks would know by their training's own exchange. */
static struct common {
	struct {
		_Atomic int pid;
		_Atomic uint64_t step;
		_Atomic uint64_t failed; /* the last step in which a call did, or 0 */
		_Atomic unsigned lives;
		atomic_bool settled; /* its states are those of its step */
	} ranks[RANKS];
} * common;

static struct frag *f;
static unsigned rank;
static const char *dir;
static void *stream;
static uint8_t *moving, *fixed, *loose; /* of this rank */
static uint64_t part_bytes;
static uint8_t *fetched_to, *gathered_to, *scattered_from;
static int param;

static _Noreturn void die(const char *what, long rc)
{
	fprintf(stderr, "storm-job %u: %s: %ld\n", rank, what, rc);
	_exit(1);
}

static void check(const char *what, int rc)
{
	if (rc)
		die(what, rc);
}

/* ---- each call ends ---- */

static uint64_t begun_ms;

static void begin(void)
{
	begun_ms = monotonic_ms();
}

static int in_time(const char *what, int rc)
{
	if (monotonic_ms() - begun_ms > BOUND_MS)
		die(what, (long)(monotonic_ms() - begun_ms));
	return rc;
}

static void expect_one_of(const char *what, int rc)
{
	static const int ends[] = {
		0, -EIO, -ETIMEDOUT, -ESTALE, -EREMOTE, -EAGAIN, -ECANCELED
	};

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		if (rc == ends[i])
			return;
	die(what, rc);
}

/* ---- what it is told ---- */

static bool read_word(const char *name, char word[32])
{
	char path[4096];
	FILE *file;
	bool found;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "re");
	found = file && fscanf(file, "%31s", word) == 1;
	if (file)
		fclose(file);
	return found;
}

static void obey(void)
{
	char name[32], word[32], path[4096];

	snprintf(name, sizeof(name), "do.%u", rank);
	if (!read_word(name, word))
		return;
	nccl.break_all(strcmp(word, "error") ? 0 : ERROR);
	nccl.stall(!strcmp(word, "silence"));
	nccl.hang(strcmp(word, "hang") ? NULL : "CommInitRankConfig");
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
}

static bool is_over(void)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/stop", dir);
	return !access(path, F_OK);
}

static void say_state(void)
{
	static char last[128];
	char *text, *end;

	pthread_mutex_lock(&f->engine->lock);
	text = landing_text(f->engine);
	pthread_mutex_unlock(&f->engine->lock);
	end = text ? strchr(text, '\n') : NULL;
	if (!end)
		die("no text", 0);
	*end = '\0';
	if (strcmp(text, last)) {
		snprintf(last, sizeof(last), "%s", text);
		printf("%s\n", text);
	}
	free(text);
}

/* ---- training ---- */

/* Or is stopped: the others do not wait for it. */
static bool is_gone(int pid)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = pid ? fopen(path, "re") : NULL;
	if (file && fscanf(file, "%*d %*s %c", &state) != 1)
		state = 0;
	if (file)
		fclose(file);
	return !state || strchr("TZX", state);
}

/* As far as the others do. */
static void keep_pace(uint64_t step)
{
	atomic_store(&common->ranks[rank].step, step);
	for (unsigned other = 0; other < RANKS; other++)
		while (atomic_load(&common->ranks[other].step) + 1 < step &&
		       !is_gone(atomic_load(&common->ranks[other].pid)))
			nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* It was stopped, and the others wait where it is to come. */
static bool is_behind(uint64_t step)
{
	bool behind = false;

	for (unsigned other = 0; other < RANKS; other++)
		behind |= atomic_load(&common->ranks[other].step) > step + 1;
	return behind;
}

static uint64_t steps(void)
{
	return atomic_load(&f->engine->registry.control->step);
}

/* One that was stopped just before it called comes when the others are elsewhere; whose call
 * failed at once is at its next while they are still at the first.
 */
static bool is_apart(void)
{
	uint64_t step = steps();
	bool apart = is_behind(step);

	for (unsigned i = 0; i < RANKS; i++) {
		uint64_t failed = atomic_load(&common->ranks[i].failed);

		apart |= atomic_load(&common->ranks[i].step) + 1 < step;
		apart |= failed && failed + 1 >= step;
	}
	return apart;
}

static int met(const char *what, int rc, bool was_apart)
{
	in_time(what, rc);
	if (rc != -EINVAL || !(was_apart || is_apart()))
		expect_one_of(what, rc);
	if (rc)
		atomic_store(&common->ranks[rank].failed, steps());
	return rc;
}

static void fill(uint64_t step)
{
	check("cudaMemsetAsync",
	      cuda.memset_async(moving, (int)(step & 0xff), part_bytes, stream));
}

static void train(void)
{
	begin();
	check("frag_step_begin", in_time("frag_step_begin", frag_step_begin(f)));
	fill(steps() + 1);
	begin();
	check("frag_step_end", in_time("frag_step_end", frag_step_end(f)));
}

static bool all_are_settled(unsigned *lives)
{
	bool all = true;

	*lives = 0;
	for (unsigned i = 0; i < RANKS; i++) {
		*lives += atomic_load(&common->ranks[i].lives);
		all &= atomic_load(&common->ranks[i].settled);
	}
	return all;
}

/* ---- what comes ---- */

static bool is_one_byte(const uint8_t *bytes)
{
	return !memcmp(bytes, bytes + 1, BYTES - 1);
}

static uint64_t rounds(void)
{
	struct rounds_figures figures;

	rounds_figures(f->engine, &figures);
	return figures.rounds - figures.failed;
}

/* What is read meanwhile may be of several steps, as by frag_get. */
static void fetch(void)
{
	static uint64_t before;
	static int number = -1;
	static bool settled;
	static unsigned lives, fetched;
	unsigned now;
	int rc;

	if (number < 0) {
		settled = all_are_settled(&lives);
		before = rounds();
		begin();
		number = in_time("frag_fetch",
				 frag_fetch(f, param, "exp_avg", fetched_to, BYTES));
		expect_one_of("frag_fetch", number < 0 ? number : 0);
		return;
	}
	begin();
	rc = in_time("frag_fetched", frag_fetched(f, number));
	if (rc == -EAGAIN)
		return;
	expect_one_of("frag_fetched", rc);
	number = -1;
	if (rc || rounds() == before)
		return;
	if (settled && all_are_settled(&now) && now == lives && !is_one_byte(fetched_to))
		die("what a round brought is of several steps", fetched_to[0]);
	if (!fetched++)
		printf("fetched\n");
}

static uint64_t launched(void)
{
	struct collective_about about;

	pthread_mutex_lock(&f->engine->lock);
	communicator_about(f->engine, &about);
	pthread_mutex_unlock(&f->engine->lock);
	return about.ended;
}

static int gather_of(const char *key)
{
	bool apart = is_apart();

	memset(gathered_to, 0, BYTES);
	begin();
	return met("frag_gather", frag_gather(f, param, key, gathered_to, BYTES, GATHER_MS),
		   apart);
}

static void gather(void)
{
	char mark[32] = "";
	uint64_t before = launched();

	read_word("mark", mark);
	if (gather_of("exp_avg_sq"))
		return;
	if (!is_one_byte(gathered_to) || gathered_to[0] != 0x55)
		die("what was gathered is something else", gathered_to[0]);
	if (launched() > before)
		printf("gathered %s\n", mark);
}

static struct {
	uint8_t byte; /* that all have if this rank has */
	unsigned lives;
} even;

static void scatter(uint64_t step)
{
	unsigned root = (unsigned)(step / GATHER_STEPS) % RANKS, lives;
	uint8_t byte = (uint8_t)(step / GATHER_STEPS);
	bool apart = is_apart();

	all_are_settled(&lives);
	check("cudaMemsetAsync", cuda.memset_async(scattered_from, byte, BYTES, stream));
	begin();
	if (met("frag_scatter",
		frag_scatter(f, param, "loose", (int)root, scattered_from, BYTES, GATHER_MS),
		apart))
		return;
	even.byte = byte;
	even.lives = lives;
}

/* All of it has been applied, or nothing. */
static void look_at_scattered(void)
{
	static unsigned seen;
	unsigned lives, after;
	uint8_t own[4];

	all_are_settled(&lives);
	if (gather_of("loose"))
		return;
	check("cudaStreamSynchronize", cuda.stream_synchronize(stream));
	memcpy(own, loose, sizeof(own));
	all_are_settled(&after);
	if (lives != even.lives || after != lives || own[0] != even.byte)
		return;
	if (!is_one_byte(gathered_to) || gathered_to[0] != even.byte)
		die("what was scattered is with some only", gathered_to[0]);
	if (!seen++)
		printf("scattered\n");
}

static void rendezvous_wait(uint64_t step)
{
	if (step % GATHER_STEPS == 0) {
		gather();
		look_at_scattered();
	}
	if (step % GATHER_STEPS == SCATTER_AT)
		scatter(step);
	if (step % BARRIER_STEPS)
		return;
	begin();
	expect_one_of("frag_barrier", in_time("frag_barrier", frag_barrier(f, GATHER_MS)));
}

static void go_on(void)
{
	uint64_t step;

	train();
	step = steps();
	atomic_store(&common->ranks[rank].settled, true);
	keep_pace(step);
	obey();
	say_state();
	fetch();
	if (!is_behind(step))
		rendezvous_wait(step);
}

/* ---- it begins ---- */

static void find(void *library, const char *name, void *function)
{
	*(void **)function = library ? dlsym(library, name) : NULL;
	if (!*(void **)function)
		die(name, 0);
}

static void load(void)
{
	void *runtime = dlopen("libcudart.so.13", RTLD_NOW),
	     *library = dlopen("libnccl.so.2", RTLD_NOW);

	find(runtime, "cudaMalloc", &cuda.malloc);
	find(runtime, "cudaMemsetAsync", &cuda.memset_async);
	find(runtime, "cudaStreamCreateWithFlags", &cuda.stream_create);
	find(runtime, "cudaStreamSynchronize", &cuda.stream_synchronize);
	find(runtime, "cudaSetDevice", &cuda.set_device);
	find(library, "nccl_stub_break", &nccl.break_all);
	find(library, "nccl_stub_stall", &nccl.stall);
	find(library, "nccl_stub_hang", &nccl.hang);
}

static void meet_common(void)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/common", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(*common)))
		die(path, errno);
	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (common == MAP_FAILED)
		die("mmap", errno);
	atomic_store(&common->ranks[rank].settled, false);
	atomic_fetch_add(&common->ranks[rank].lives, 1);
	atomic_store(&common->ranks[rank].pid, 0);
}

static void *on_device(uint64_t size, int value)
{
	void *memory;

	check("cudaMalloc", cuda.malloc(&memory, size));
	check("cudaMemsetAsync", cuda.memset_async(memory, value, size, stream));
	check("cudaStreamSynchronize", cuda.stream_synchronize(stream));
	return memory;
}

static void describe(void)
{
	const uint64_t shape = NUMEL;
	const struct frag_tensor w = {
		.size = sizeof(w), .name = "w", .dtype = FRAG_F32, .ndim = 1, .shape = &shape
	};
	const struct frag_zero zero = { .size = sizeof(zero), .stage = 2 };

	param = frag_param(f, &w);
	check("frag_group", frag_group(f, &param, 1, &zero));
	part_bytes = frag_partition_numel(f, 0, 0) * 4;
	moving = on_device(part_bytes, 0);
	fixed = on_device(part_bytes, 0x55);
	loose = on_device(part_bytes, 0);
	fetched_to = on_device(BYTES, 0);
	gathered_to = on_device(BYTES, 0);
	scattered_from = on_device(BYTES, 0);
	check("frag_state_keep", frag_state_keep(f, 0, 0, "exp_avg", FRAG_F32, moving));
	check("frag_state_keep", frag_state_keep(f, 0, 0, "exp_avg_sq", FRAG_F32, fixed));
	check("frag_state_keep", frag_state_keep(f, 0, 0, "loose", FRAG_F32, loose));
}

/* As frag_devices does, but that it waits for less. */
static void connect(void)
{
	const struct frag_devices devices = { .size = sizeof(devices),
					      .number = (int)rank % 2,
					      .stream = stream,
					      .timeout_ms = DEVICE_MS };
	struct collective_options options = { .number = devices.number,
					      .open_ms = OPEN_MS,
					      .end_ms = END_MS };
	struct engine *e = f->engine;

	check("frag_devices", api_devices_over(f, &devices, &device_cuda));
	options.device = devices_port(e->registry.devices);
	e->timeout_ms = SILENCE_MS;
	pthread_mutex_lock(&e->lock);
	check("rounds_init", rounds_init(e));
	check("communicator_use", communicator_use(e, &collective_nccl, &options));
	pthread_mutex_unlock(&e->lock);
}

/* Until all are here: one that comes back counts on from where they are. */
static void meet(void)
{
	int rc;

	do
		rc = frag_barrier(f, MEET_MS);
	while (rc == -EIO && !is_over());
	check("frag_barrier at first", rc);
	fill(steps());
	atomic_store(&common->ranks[rank].step, steps());
	atomic_store(&common->ranks[rank].pid, getpid());
}

int main(int argc, char **argv)
{
	dir = argv[1];
	rank = (unsigned)atoi(getenv("RANK"));
	setvbuf(stdout, NULL, _IOLBF, 0);
	load();
	meet_common();
	check("frag_open", frag_open(&f, NULL));
	check("cudaSetDevice", cuda.set_device((int)rank % 2));
	check("cudaStreamCreateWithFlags", cuda.stream_create(&stream, 1));
	connect();
	describe();
	check("frag_ready", frag_ready(f));
	meet();
	while (!is_over())
		go_on();
	begin();
	frag_close(f);
	in_time("frag_close", 0);
	return 0;
}
