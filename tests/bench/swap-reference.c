/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/bench/swap-reference.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

enum { DEPTH_MAX = 128 };

struct part {
	const struct reference *r;
	const char *path;
	bool write;
	uint8_t *memory;
	uint64_t from, to;
	unsigned number;
};

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "bench-swap: reference: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void submit(aio_context_t context, struct iocb *cb, int fd, const struct part *p,
		   uint64_t at)
{
	*cb = (struct iocb){ .aio_fildes = (uint32_t)fd,
			     .aio_lio_opcode = p->write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
			     .aio_buf = (uint64_t)(uintptr_t)(p->memory + at),
			     .aio_nbytes = u64_min(p->r->block, p->to - at),
			     .aio_offset = (int64_t)at };
	if (syscall(SYS_io_submit, context, 1, &cb) != 1)
		fail("io_submit");
}

/* Fills the queue, then submits a block for each that has ended. */
static void run_part(const struct part *p, aio_context_t context, int fd)
{
	struct iocb blocks[DEPTH_MAX];
	struct io_event event;
	unsigned underway = 0;
	uint64_t at = p->from;

	while (at < p->to || underway) {
		struct iocb *cb = &blocks[underway];

		if (underway == p->r->depth || at == p->to) {
			if (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1)
				fail("io_getevents");
			cb = (struct iocb *)(uintptr_t)event.obj;
			if (event.res != (int64_t)cb->aio_nbytes)
				fail("short");
			underway--;
		}
		if (at < p->to) {
			submit(context, cb, fd, p, at);
			at += u64_min(p->r->block, p->to - at);
			underway++;
		}
	}
}

/* Made once, as by DeepNVMe's handle. */
static aio_context_t contexts[REFERENCE_THREADS];

static void *work(void *arg)
{
	const struct part *p = arg;
	int flags = (p->write ? O_WRONLY | O_CREAT : O_RDONLY) | O_DIRECT | O_CLOEXEC;
	int fd = open(p->path, flags, 0600);

	if (fd < 0)
		fail(p->path);
	run_part(p, contexts[p->number], fd);
	close(fd);
	return NULL;
}

void reference_run(const struct reference *r, const char *path, bool write, void *memory,
		   uint64_t size)
{
	struct part parts[REFERENCE_THREADS];
	pthread_t threads[REFERENCE_THREADS];
	uint64_t each = u64_div_ceil(size / 4096, r->threads) * 4096;

	for (unsigned i = 0; i < r->threads; i++) {
		if (!contexts[i] && syscall(SYS_io_setup, DEPTH_MAX, &contexts[i]))
			fail("io_setup");
		parts[i] = (struct part){ .r = r,
					  .path = path,
					  .write = write,
					  .memory = memory,
					  .from = u64_min(size, i * each),
					  .to = u64_min(size, (i + 1) * each),
					  .number = i };
	}
	for (unsigned i = 1; i < r->threads; i++)
		if (pthread_create(&threads[i], NULL, work, &parts[i]))
			fail("pthread_create");
	work(&parts[0]);
	for (unsigned i = 1; i < r->threads; i++)
		pthread_join(threads[i], NULL);
}
