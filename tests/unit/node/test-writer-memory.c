/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/node/writer-memory.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* A rank copies from the memory of a mount that has the job's key, and of nobody else. */

static struct peer peers[1];
static struct engine rank, mount;
static uint8_t got[64], written[64];
static pid_t writer; /* has what this process had in memory when it began */

static void make(struct engine *e, bool is_rank, uint8_t key)
{
	*e = (struct engine){ .is_rank = is_rank,
			      .memory.ops = &transport_host,
			      .peers = peers };
	ck_assert_int_eq(
		transport_host.open(&e->memory.transport, &(struct transport_config){ 0 }), 0);
	e->job.key.is_there = true;
	memset(e->job.key.bytes, key, sizeof(e->job.key.bytes));
	writer_memory_init(e);
}

static void fork_writer(void)
{
	writer = fork();
	ck_assert_int_ge(writer, 0);
	while (!writer)
		pause();
}

static void end_writer(void)
{
	kill(writer, SIGKILL);
	waitpid(writer, NULL, 0);
}

static void setup(void)
{
	peers[0].way = PEER_WAY_MEMORY;
	make(&rank, true, 1);
	make(&mount, false, 1);
	memset(got, 0, sizeof(got));
	memset(written, 7, sizeof(written));
	fork_writer();
}

static void teardown(void)
{
	transport_host.close(rank.memory.transport);
	transport_host.close(mount.memory.transport);
	end_writer();
}

static struct wire_memory named(const void *bytes)
{
	struct wire_memory from;

	ck_assert(writer_memory_name(&mount, 0, bytes, &from));
	ck_assert_uint_eq(from.pid, (uint64_t)getpid());
	from.pid = (uint64_t)writer;
	return from;
}

static int copy(struct wire_memory from)
{
	struct iovec to[] = { { got, 3 }, { got + 3, sizeof(got) - 3 } };

	return writer_memory_copy(&rank, &from, to, 2);
}

START_TEST(a_rank_copies_what_a_mount_names)
{
	ck_assert_int_eq(copy(named(written)), 0);
	ck_assert_mem_eq(got, written, sizeof(got));
}
END_TEST

START_TEST(a_rank_copies_from_no_other_process)
{
	static const uint64_t nothing[2];
	struct wire_memory from = named(got);

	from.word = (uintptr_t)nothing;
	ck_assert_int_eq(copy(from), -ENOLINK);
	from.word = (uintptr_t)rank.write.word; /* a rank's memory is no writer's */
	ck_assert_int_eq(copy(from), -ENOLINK);
	from = named(got);
	from.pid = UINT64_MAX;
	ck_assert_int_eq(copy(from), -ENOLINK);
	from.pid = (uint64_t)getppid();
	ck_assert_int_eq(copy(from), -ENOLINK);
	from.pid = (uint64_t)getpid(); /* the rank itself, in which the word is */
	ck_assert_int_eq(copy(from), -ENOLINK);
	from.pid = (uint64_t)writer;
	ck_assert_int_eq(copy(from), 0);
	peers[0].entry = (struct wire_entry){ .present = 1, .pid = (uint32_t)writer };
	rank.world = 1; /* it is another rank */
	ck_assert_int_eq(copy(from), -ENOLINK);
	peers[0].entry.present = 0;
	teardown();
	make(&rank, true, 1);
	make(&mount, false, 2); /* another job's */
	fork_writer();
	ck_assert_int_eq(copy(named(got)), -ENOLINK);
}
END_TEST

START_TEST(memory_that_has_gone_is_said_to_have)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(page, size);
	ck_assert_int_eq(copy(named(page)), -ENOLINK);
}
END_TEST

START_TEST(bytes_are_sent_where_memory_cannot_be_named)
{
	struct wire_memory from;

	ck_assert(!writer_memory_name(&rank, 0, got, &from));
	writer_memory_refused(&mount, 0);
	ck_assert(!writer_memory_name(&mount, 0, got, &from));
	peers[0].wants_staged = false;
	peers[0].way = PEER_WAY_MESSAGES;
	ck_assert(!writer_memory_name(&mount, 0, got, &from));
	peers[0].way = PEER_WAY_MEMORY;
	mount.job.key.reads_only = true;
	writer_memory_init(&mount);
	ck_assert(!writer_memory_name(&mount, 0, got, &from));
	mount.job.key = (struct source_key){ .is_there = false };
	writer_memory_init(&mount);
	ck_assert(!writer_memory_name(&mount, 0, got, &from));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("writer-memory");
	TCase *t = tcase_create("writer-memory");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_rank_copies_what_a_mount_names);
	tcase_add_test(t, a_rank_copies_from_no_other_process);
	tcase_add_test(t, memory_that_has_gone_is_said_to_have);
	tcase_add_test(t, bytes_are_sent_where_memory_cannot_be_named);
	return run_suite(suite, t);
}
