/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Reads of a state of another rank, whose memory the reader cannot reach, by ZeroMQ, by TLS and
 * by UCX, all on TCP over lo, beside each other: two processes, a job for each way, which are
 * read by turns.  The reference of all is a TCP socket by which the same bytes are asked for,
 * sent and received in a loop.
 */

#include "engine/api/api.h"
#include "tests/bench/rows.h"
#include "tests/unit/transport/ucx-there.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum {
	SIZE = 128 << 20, /* of what the other rank holds */
	SMALL = 4096,
	READS = 400, /* of SMALL bytes in a round */
	OWNER = 0,
	READER = 1,
	RANKS = 2,
	WAIT_MS = 60000,
};

struct job {
	const char *name;
	bool plain, bulk, ucx;
	struct frag *f;
	int param;
};

static struct job jobs[] = { { .name = "curve" },
			     { .name = "plain", .plain = true },
			     { .name = "tls", .bulk = true },
			     { .name = "tcp", .plain = true, .bulk = true },
			     { .name = "ucx", .ucx = true } };
enum { CURVE, PLAIN, TLS, TCP, UCX, JOBS };

static unsigned njobs;
static pid_t launcher;
static uint8_t *memory; /* the owner's: the bytes of its socket; the reader's: the bytes read */
static int stream;      /* the TCP socket of the reference */

static void must(const char *what, int rc)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "bench-fabric: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static void must_errno(const char *what, long rc)
{
	if (rc < 0)
		must(what, -errno);
}

/* ---- a rank of each job ---- */

static void open_job(struct job *j, unsigned rank)
{
	struct launch launch = {
		.rank = rank, .world = RANKS, .plain = j->plain, .bulk = j->bulk
	};
	uint64_t numel = SIZE / sizeof(float) * RANKS;
	struct frag_tensor t = { sizeof(t), .name = "w", .dtype = FRAG_F32, .ndim = 1,
				 .shape = &numel };
	struct frag_zero zero = { sizeof(zero), .stage = 1 };
	void *state;

	if (j->ucx)
		launch.fabric =
			(struct fabric_config){ .wanted = true, .open = true, .devices = "lo" };
	snprintf(launch.job, sizeof(launch.job), "bench-fabric-%d-%s", (int)launcher, j->name);
	must("launch", launch_host(launch.host));
	must("frag_open", api_open_over(&j->f, &launch, &transport_zmq, NULL, NULL, true));
	must("frag_param", j->param = frag_param(j->f, &t));
	must("frag_group", frag_group(j->f, &j->param, 1, &zero));
	must("frag_state_alloc", frag_state_alloc(j->f, 0, 0, "fp32", FRAG_F32, &state));
	for (uint64_t i = 0; i < SIZE / sizeof(float); i++)
		((float *)state)[i] = (float)(i % 8191);
	must("frag_ready", frag_ready(j->f));
}

static void open_jobs(unsigned rank)
{
	for (unsigned i = 0; i < njobs; i++)
		open_job(&jobs[i], rank);
	for (unsigned i = 0; i < njobs; i++)
		must("frag_barrier", frag_barrier(jobs[i].f, WAIT_MS));
}

static void close_jobs(void)
{
	for (unsigned i = 0; i < njobs; i++)
		must("frag_barrier", frag_barrier(jobs[i].f, WAIT_MS));
	for (unsigned i = 0; i < njobs; i++)
		frag_close(jobs[i].f);
}

static void get(const struct job *j, uint64_t offset, void *to, uint64_t size)
{
	must(j->name, frag_get_range(j->f, j->param, "fp32", offset, to, size));
}

static bool answers_so(const struct job *j)
{
	struct engine *e = j->f->engine;
	bool used;

	pthread_mutex_lock(&e->lock);
	used = j->ucx ? e->peers[OWNER].fabric : e->peers[OWNER].bulk == PEER_BULK_ANSWERS;
	pthread_mutex_unlock(&e->lock);
	return used;
}

static void until_so(const struct job *j)
{
	uint64_t deadline = monotonic_ms() + WAIT_MS;

	while (!answers_so(j) && monotonic_ms() < deadline)
		get(j, 0, memory, SMALL);
	must(j->name, answers_so(j) ? 0 : -ETIMEDOUT);
}

/* ---- a socket ---- */

struct asked {
	uint64_t offset, size;
};

static bool receive(void *to, uint64_t size)
{
	for (uint64_t at = 0; at < size;) {
		ssize_t n = recv(stream, (uint8_t *)to + at, size - at, MSG_WAITALL);

		if (!n)
			return false;
		must_errno("recv", n);
		at += (uint64_t)n;
	}
	return true;
}

static void send_all(const void *from, uint64_t size)
{
	for (uint64_t at = 0; at < size;) {
		ssize_t n = send(stream, (const uint8_t *)from + at, size - at, MSG_NOSIGNAL);

		must_errno("send", n);
		at += (uint64_t)n;
	}
}

static void answer_by_socket(void)
{
	struct asked asked;

	while (receive(&asked, sizeof(asked)))
		send_all(memory + asked.offset, asked.size);
}

static void ask_by_socket(uint64_t offset, void *to, uint64_t size)
{
	const struct asked asked = { offset, size };

	send_all(&asked, sizeof(asked));
	if (!receive(to, size))
		must("socket", -EPIPE);
}

static int listen_anywhere(struct sockaddr_in *name)
{
	socklen_t size = sizeof(*name);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*name = (struct sockaddr_in){ .sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	must_errno("socket", fd);
	must_errno("bind", bind(fd, (struct sockaddr *)name, sizeof(*name)));
	must_errno("listen", listen(fd, 1));
	must_errno("getsockname", getsockname(fd, (struct sockaddr *)name, &size));
	return fd;
}

static void no_delay(void)
{
	const int on = 1;

	must_errno("TCP_NODELAY",
		   setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
}

/* ---- ways: a job, or NULL: the socket ---- */

static void ask(const struct job *j, uint64_t offset, void *to, uint64_t size)
{
	if (j)
		get(j, offset, to, size);
	else
		ask_by_socket(offset, to, size);
}

static double rate(const void *job)
{
	uint64_t since = monotonic_ns();

	ask(job, 0, memory, SIZE);
	return (double)SIZE / (double)(monotonic_ns() - since);
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static double latency_us(const void *job)
{
	static uint64_t place;
	double us[READS];

	for (unsigned i = 0; i < READS; i++) {
		uint64_t since;

		place += 0x9e3779b97f4a7c15u;
		since = monotonic_ns();
		ask(job, place % (SIZE / SMALL) * SMALL, memory, SMALL);
		us[i] = (double)(monotonic_ns() - since) / 1e3;
	}
	qsort(us, READS, sizeof(us[0]), by_value);
	return us[READS / 2];
}

static void check(const struct job *j)
{
	const float *got = (const float *)memory;

	memset(memory, 0, SIZE);
	rate(j);
	for (uint64_t i = 0; i < SIZE / sizeof(float); i++)
		if (got[i] != (float)(i % 8191))
			must("what came", -EBADMSG);
}

/* ---- rows ---- */

enum { WAYS = JOBS + 1 };

/* Returns the goal of a row: only encrypted bytes have one. */
static double goal_of(bool less, const struct rows_way *way, const struct rows_way *of)
{
	if (way->arg != &jobs[TLS] || of->arg)
		return 0;
	return less ? 2 : 0.7;
}

static void tell(const char *what, bool less, const char *by, const struct rows_way *way,
		 const char *reference, const struct rows_way *of, unsigned rounds)
{
	char name[100];
	struct row r = { .name = name,
			 .unit = less ? "us" : "GB/s",
			 .reference = reference,
			 .less = less,
			 .goal = goal_of(less, way, of) };

	snprintf(name, sizeof(name), "%s, %s", what, by);
	rows_compare(&r, way->measured, of->measured, rounds);
}

static void measure(const char *what, bool less, double (*run)(const void *job))
{
	struct rows_way all[WAYS] = { WAY(run, &jobs[CURVE]), WAY(run, &jobs[PLAIN]),
				      WAY(run, &jobs[TLS]), WAY(run, &jobs[TCP]) };
	unsigned rounds = rows_rounds(7);

	all[njobs] = (struct rows_way)WAY(run, NULL);
	if (njobs == JOBS)
		all[UCX] = (struct rows_way)WAY(run, &jobs[UCX]);
	rows_run(all, njobs + 1, rounds);
	if (njobs == JOBS) {
		tell(what, less, "UCX", &all[UCX], "ZeroMQ, CURVE", &all[CURVE], rounds);
		tell(what, less, "UCX", &all[UCX], "ZeroMQ, plain", &all[PLAIN], rounds);
		tell(what, less, "UCX", &all[UCX], "TCP socket", &all[njobs], rounds);
	}
	tell(what, less, "TLS", &all[TLS], "ZeroMQ, CURVE", &all[CURVE], rounds);
	tell(what, less, "TLS", &all[TLS], "TCP socket", &all[njobs], rounds);
	tell(what, less, "plain TCP", &all[TCP], "TCP socket", &all[njobs], rounds);
	tell(what, less, "ZeroMQ, CURVE", &all[CURVE], "TCP socket", &all[njobs], rounds);
	tell(what, less, "ZeroMQ, plain", &all[PLAIN], "TCP socket", &all[njobs], rounds);
}

/* ---- all ---- */

static void own(int listener)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	stream = accept(listener, NULL, NULL);
	must_errno("accept", stream);
	no_delay();
	open_jobs(OWNER);
	answer_by_socket();
	close_jobs();
}

static void read_all(const struct sockaddr_in *name)
{
	stream = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must_errno("socket", stream);
	must_errno("connect", connect(stream, (const struct sockaddr *)name, sizeof(*name)));
	no_delay();
	open_jobs(READER);
	for (unsigned i = TLS; i < njobs; i++)
		until_so(&jobs[i]);
	for (unsigned i = 0; i < njobs; i++)
		check(&jobs[i]);
	measure("128 MiB of another rank", false, rate);
	measure("4 KiB of another rank, p50", true, latency_us);
	for (unsigned i = TLS; i < njobs; i++)
		must(jobs[i].name, answers_so(&jobs[i]) ? 0 : -EIO);
	close(stream);
	close_jobs();
}

int main(void)
{
	struct sockaddr_in name;
	int listener = listen_anywhere(&name), status;
	pid_t owner;

	rows_go_first("bench-fabric");
	launcher = getpid();
	njobs = ucx_is_there() ? JOBS : UCX;
	if (njobs < JOBS)
		fprintf(stderr, "bench-fabric: by UCX: skipped: it is not there\n");
	setenv("FRAG_LOG", "error", 1); /* without warnings of ranks that leave */
	memory = aligned_alloc(2 << 20, SIZE);
	must("memory", memory ? 0 : -ENOMEM);
	memset(memory, 1, SIZE);
	owner = fork();
	must_errno("fork", owner);
	if (!owner) {
		own(listener);
		_exit(0);
	}
	close(listener);
	read_all(&name);
	return waitpid(owner, &status, 0) < 0 || status;
}
