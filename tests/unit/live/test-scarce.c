/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Parts of the engine where the machine has no memory, descriptor or thread at the n-th call,
 * for each n: the call fails with what is wanting, nothing stays open, and the next one is
 * good.
 */

#include "engine/catalog/layout.h"
#include "engine/live/live.h"
#include "engine/live/loop.h"
#include "engine/memory/view-pool.h"
#include "engine/rank/registry.h"
#include "engine/read/readahead.h"
#include "engine/swap/disk.h"
#include "engine/transport/transport-peers.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"
#include "tests/unit/transport/transports.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>

enum { ROWS = 70, IN_A_ROW = 7 }; /* rows: more than the first room, of the index too */

static const unsigned counts[] = { 1, IN_A_ROW };

/* ---- tables of states ---- */

static int fill_states(struct states *s)
{
	char key[16];
	int rc = 0;

	for (int i = 0; i < ROWS && rc >= 0; i++) {
		snprintf(key, sizeof(key), "key%d", i);
		rc = states_add(s, STATE_PARTITION, 0, 0, key, FRAG_F32, 8,
				(struct state_segment){ 0, 4, 4096 });
		if (rc >= 0)
			rc = states_add_segment(s, (uint32_t)rc,
						(struct state_segment){ 4, 4, 8192 });
	}
	return rc < 0 ? rc : states_add_share(s, (struct state_share){ 3, 4096, 4096 });
}

static int pass_states(void)
{
	static const uint32_t map[1];
	struct states s = { .epoch = 1 }, *decoded = NULL;
	struct wire_writer w = { 0 };
	int rc = fill_states(&s);

	if (!rc)
		rc = states_encode(&s, map, map, &w);
	if (!rc)
		rc = states_decode(&decoded, w.data, w.size);
	states_free(decoded);
	states_fini(&s);
	free(w.data);
	return rc;
}

static int keep_states(void)
{
	static float memory[8];
	struct registry r = { 0 };
	enum frag_dtype dtype;
	bool is_declared;
	void *allocated;
	int rc = registry_init(&r);

	if (!rc)
		rc = registry_keep_segment(&r, 0, 0, "d", FRAG_F32, 8,
					   (struct state_segment){ 0, 4, 0 });
	is_declared = !rc;
	if (!rc)
		rc = registry_keep_segment(&r, 0, 0, "d", FRAG_F32, 8,
					   (struct state_segment){ 0, 4, (uintptr_t)memory });
	if (is_declared && registry_find(&r, STATE_PARTITION, 0, 0, "d", &dtype) < 0)
		rc = -ENOENT;
	if (!rc)
		rc = registry_keep(&r, STATE_PARTITION, 0, 0, "a", FRAG_F32, 8, memory);
	if (!rc)
		rc = registry_keep_segment(&r, 0, 0, "b", FRAG_F32, 8,
					   (struct state_segment){ 0, 4, (uintptr_t)memory });
	if (!rc)
		rc = registry_replace(&r, STATE_PARTITION, 0, 0, "b",
				      &(struct state_segment){ 4, 4, (uintptr_t)(memory + 4) },
				      1);
	if (!rc)
		rc = registry_alloc(&r, STATE_PARTITION, 0, 0, "c", FRAG_F32, 1 << 20,
				    &allocated);
	if (!rc)
		rc = registry_drop(&r, STATE_PARTITION, 0, 0, "c");
	registry_fini(&r);
	return rc;
}

/* ---- transports ---- */

static int send_bytes(struct transport *t, uint32_t peer, size_t size)
{
	static uint8_t bytes[1 << 20];
	struct iovec part = { bytes, size };

	return transport_zmq.send(t, peer, &part, 1);
}

static int talk(const struct transport_config *config)
{
	struct transport *to = NULL, *from = NULL;
	uint32_t peer;
	int rc = transport_zmq.open(&to, config);

	if (!rc)
		rc = transport_zmq.open(&from, config);
	if (!rc)
		rc = transport_zmq.connect(from, transport_zmq.address(to), &peer);
	if (!rc)
		rc = send_bytes(from, peer, 100);
	if (!rc)
		rc = send_bytes(from, peer, 1 << 20);
	transport_zmq.close(from);
	transport_zmq.close(to);
	return rc;
}

static int talk_plainly(void)
{
	return talk(&(struct transport_config){ .bind = "tcp://127.0.0.1" });
}

static int talk_secretly(void)
{
	return talk(&(struct transport_config){ .bind = "tcp://127.0.0.1", .key = job_key });
}

static int sealed; /* a memfd of a page */

static void setup(void)
{
	sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(sealed, 4096), 0);
	ck_assert_int_eq(
		fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE),
		0);
}

static void teardown(void)
{
	close(sealed);
}

/* Our own memory, and a part of it by a mapping. */
static int read_memory(void)
{
	static uint64_t control[512] = { 7, 8 };
	struct transport_target target = { .pid = getpid(),
					   .control = (uintptr_t)control,
					   .cookie = { 7, 8 } };
	struct transport *t;
	uint32_t peer;
	int rc = transport_host.open(&t, &(struct transport_config){ 0 });

	if (rc)
		return rc;
	rc = transport_host.attach(t, &target, &peer);
	if (!rc)
		rc = transport_host.share(t, peer, sealed, 4096, 4096);
	transport_host.close(t);
	return rc;
}

static int know_peers(void)
{
	struct transport_peers p;
	struct transport_peer *peer;
	bool fresh;
	int rc;

	transport_peers_init(&p, 4);
	rc = transport_peers_heard(&p, 7, &peer);
	if (!rc)
		rc = transport_peers_connect(&p, "tcp://nowhere:1", &peer, &fresh);
	transport_peers_fini(&p);
	return rc;
}

/* ---- reading files ---- */

static _Atomic int came;

static void on_read(struct disk_io *read, int result)
{
	atomic_store(&came, result);
}

static int read_file(const struct disk_ops *ops)
{
	char bytes[64];
	CLEANUP(close) int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct disk_io read = { .fd = fd,
				.size = sizeof(bytes),
				.memory = bytes,
				.slab = DISK_NO_SLAB,
				.done = on_read };
	struct disk *d;
	int rc = ops->open(&d, NULL);

	if (rc)
		return rc;
	atomic_store(&came, -EINPROGRESS);
	ops->submit(d, &read);
	for (uint64_t end = monotonic_ms() + 60000;
	     atomic_load(&came) == -EINPROGRESS && monotonic_ms() < end;)
		sched_yield();
	ops->close(d);
	return atomic_load(&came) == sizeof(bytes) ? 0 : atomic_load(&came);
}

static int read_by_threads(void)
{
	return read_file(&disk_threads);
}

/* Where the machine lets us. */
static int read_by_ring(void)
{
	int rc = read_file(&disk_uring);

	return rc == -ENOSYS || rc == -EPERM ? 0 : rc;
}

/* ---- others ---- */

static int lay_out(void)
{
	static const struct layout_param params[] = { { .numel = 64, .row = 8 },
						      { .numel = 10, .row = 1 } };
	struct layout l;
	int rc = 0;

	for (int kind = LAYOUT_FLAT; kind <= LAYOUT_ROWS && !rc; kind++) {
		struct layout_spec spec = { .kind = kind,
					    .shards = 2,
					    .alignment = 2,
					    .round_robin = true,
					    .sub_group_size = 16 };

		rc = layout_init(&l, &spec, params, 2);
		if (!rc)
			layout_fini(&l);
	}
	return rc;
}

static int lend_rooms(void)
{
	static const uint64_t view[2] = { 1, 1 };
	struct view_pool rooms;
	struct view_buffer *room;
	int rc;

	view_pool_init(&rooms, 16 << 20);
	rc = view_pool_get(&rooms, 3 << 20, view, &room);
	if (!rc)
		view_pool_put(&rooms, room, 0);
	view_pool_fini(&rooms);
	return rc;
}

static int read_ahead(void)
{
	struct engine *e;
	int rc = loop_new(&e, &live_ops, &transport_loop, &transport_loop);

	if (rc)
		return rc;
	rc = readahead_new(e);
	loop_free(e);
	return rc;
}

static const struct part {
	const char *name;
	int (*use)(void);
} parts[] = {
	{ "states", pass_states },
	{ "registry", keep_states },
	{ "messages", talk_plainly },
	{ "messages with a key", talk_secretly },
	{ "peers", know_peers },
	{ "memory", read_memory },
	{ "files by threads", read_by_threads },
	{ "files by a ring", read_by_ring },
	{ "layouts", lay_out },
	{ "rooms", lend_rooms },
	{ "reading ahead", read_ahead },
};

static bool is_need(int rc)
{
	return rc == -ENOMEM || rc == -EMFILE || rc == -EAGAIN;
}

START_TEST(a_part_works_or_says_what_is_wanting)
{
	const struct part *p = &parts[_i / 2];
	unsigned n = 0, failed, before = scarce_open_files();
	int rc;

	do {
		scarce_begin(++n, counts[_i % 2]);
		rc = p->use();
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && is_need(rc)), "%s %u: %d", p->name, n, rc);
		ck_assert_msg(scarce_open_files() == before, "%s %u leaves files open", p->name,
			      n);
	} while (failed);
	ck_assert_msg(n > 1, "%s needs nothing", p->name);
}
END_TEST

START_TEST(a_stranger_for_whom_there_is_no_memory_is_heard_the_next_time)
{
	uint64_t end = monotonic_ms() + WAIT_MS;
	struct side sides[2];
	uint32_t peer;

	for (int i = 0; i < 2; i++)
		side_open(&sides[i], &variants[1]);
	peer = side_connect(&sides[1], &sides[0]);
	ck_assert_int_eq(side_send(&sides[1], peer, "lost?", 5), 0);
	do { /* whatever it needs the memory for */
		scarce_begin(1, 1);
		sides_poll(sides, 2, 100);
	} while (!scarce_end() && monotonic_ms() < end);
	ck_assert_int_eq(side_send(&sides[1], peer, "heard", 5), 0);
	while (memcmp(sides[0].data, "heard", 5)) {
		ck_assert_uint_lt(monotonic_ms(), end);
		sides_poll(sides, 2, 100);
	}
	for (int i = 0; i < 2; i++)
		side_close(&sides[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scarce");
	TCase *t = tcase_create("scarce");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, a_part_works_or_says_what_is_wanting, 0, 2 * ARRAY_SIZE(parts));
	tcase_add_test(t, a_stranger_for_whom_there_is_no_memory_is_heard_the_next_time);
	return run_suite(s, t);
}
