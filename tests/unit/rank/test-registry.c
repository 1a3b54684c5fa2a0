/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/memory/memory.h"
#include "engine/rank/registry-internal.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = 4096, HUGE = 2 << 20 };

static struct registry r;

static void setup(void)
{
	ck_assert_int_eq(registry_init(&r), 0);
}

static void teardown(void)
{
	registry_fini(&r);
}

static uint64_t epoch(void)
{
	uint64_t shown = atomic_load(&r.control->registry_epoch);

	ck_assert_uint_eq(shown, r.states.epoch);
	return shown;
}

static int keep(const char *key, uint64_t numel, void *memory)
{
	return registry_keep(&r, STATE_PARTITION, 0, 0, key, FRAG_F32, numel, memory);
}

static uint32_t row_of(const char *key)
{
	int row = states_find(&r.states, STATE_PARTITION, 0, 0, key);

	ck_assert_int_ge(row, 0);
	return (uint32_t)row;
}

START_TEST(every_change_begins_an_epoch_and_old_ones_are_stale)
{
	float memory[16] = { 1, 2, 3 }, out[4];
	uint64_t before = epoch();

	ck_assert_int_eq(keep("fp32", 16, memory), 0);
	ck_assert_uint_gt(epoch(), before);
	ck_assert_int_eq(registry_read(&r, epoch(), row_of("fp32"), 4, out, 8), 0);
	ck_assert(out[0] == 2 && out[1] == 3);
	ck_assert_int_eq(registry_read(&r, before, row_of("fp32"), 4, out, 8), -ESTALE);
	ck_assert_int_eq(registry_read(&r, epoch(), 99, 0, out, 8), -ESTALE);
	ck_assert_int_eq(registry_clear(&r, 99), -ESTALE);
	ck_assert_int_eq(registry_read(&r, epoch(), row_of("fp32"), 60, out, 8), -EINVAL);
	before = epoch();
	ck_assert_int_eq(registry_drop(&r, STATE_PARTITION, 0, 0, "fp32"), 0);
	ck_assert_uint_gt(epoch(), before);
	ck_assert_int_eq(registry_drop(&r, STATE_PARTITION, 0, 0, "fp32"), -ENOENT);
	ck_assert_int_eq(registry_read(&r, 0, 0, 0, out, 8), -ESTALE);
}
END_TEST

START_TEST(what_changes_nothing_begins_no_epoch)
{
	float memory[16];
	uint64_t before;

	ck_assert_int_eq(keep("fp32", 16, memory), 0);
	before = epoch();
	ck_assert_int_eq(keep("fp32", 16, memory), -EEXIST);
	ck_assert_int_eq(registry_drop(&r, STATE_PARTITION, 0, 0, "none"), -ENOENT);
	ck_assert_uint_eq(epoch(), before);
}
END_TEST

START_TEST(written_bytes_land_and_what_does_not_fit_does_not)
{
	float memory[16] = { 0 }, value[2] = { -0.0f, 5 };

	keep("fp32", 16, memory);
	ck_assert_int_eq(registry_write(&r, epoch(), row_of("fp32"), 8, value, 8), 0);
	ck_assert_int_eq(memcmp(memory + 2, value, 8), 0);
	ck_assert_int_eq(registry_write(&r, epoch(), row_of("fp32"), 60, value, 8), -EINVAL);
	ck_assert_int_eq(registry_write(&r, epoch() + 1, row_of("fp32"), 8, value, 8), -ESTALE);
	ck_assert(memory[15] == 0);
}
END_TEST

/* The row may go between the look for its tier and the tier's own look at it. */
START_TEST(no_tier_has_a_row_that_is_gone)
{
	static const struct tier_ops *const tiers[] = { &registry_tier_host,
							&registry_tier_swap,
							&registry_tier_device };
	struct registry_version v = { 0 }, *version;
	void *memory;
	int device;

	for (unsigned i = 0; i < ARRAY_SIZE(tiers); i++) {
		make_version *const make[] = { tiers[i]->newest, tiers[i]->hold,
					       tiers[i]->preserve };

		if (tiers[i] != &registry_tier_device) /* which needs a device */
			ck_assert_int_eq(tiers[i]->clear(&r, 99), -ESTALE);
		for (unsigned how = 0; how < ARRAY_SIZE(make); how++)
			if (make[how])
				ck_assert_int_eq(make[how](&r, epoch(), 99, 0, 4, &v), -ESTALE);
	}
	ck_assert_int_eq(registry_put(&r, 99, 0, "", 1), -ESTALE);
	ck_assert_int_eq(registry_version_hold(&r, epoch(), 99, 0, 4, &version), -ESTALE);
	ck_assert_int_eq(registry_version_preserve(&r, epoch(), 99, 0, 4, &version), -ESTALE);
	ck_assert_int_eq(registry_device_memory(&r, epoch(), 99, 0, 4, &device, &memory),
			 -ESTALE);
}
END_TEST

START_TEST(memory_of_a_row_that_has_become_a_devices_is_not_written)
{
	float memory[16] = { 0 }, value = 5;

	keep("fp32", 16, memory);
	r.states.rows[0].tier = STATE_DEVICE;
	ck_assert_int_eq(registry_tier_host.write(&r, epoch(), 0, 0, &value, 4), -EREMOTE);
	r.states.rows[0].tier = STATE_HOST;
	ck_assert(memory[0] == 0);
}
END_TEST

static int replace(uint64_t start, uint64_t numel, void *memory)
{
	const struct state_segment s = { start, numel, (uintptr_t)memory };

	return registry_replace(&r, STATE_PARTITION, 0, 0, "fp32", &s, 1);
}

START_TEST(a_segment_is_replaced_only_as_it_is_and_where_the_others_are)
{
	float memory[16];

	ck_assert_int_eq(
		registry_keep_segment(&r, 0, 0, "fp32", FRAG_F32, 16,
				      (struct state_segment){ 0, 8, (uintptr_t)memory }),
		0);
	ck_assert_int_eq(replace(8, 8, memory + 8), 0);
	ck_assert_int_eq(replace(4, 8, memory), -EINVAL);
	r.states.rows[0].device = 1; /* as if both were there */
	ck_assert_int_eq(replace(0, 8, memory), -EINVAL);
	r.states.rows[0].device = 0;
	ck_assert_int_eq(replace(0, 8, memory), 0);
}
END_TEST

START_TEST(memory_freed_behind_our_back_is_efault)
{
	char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	static char bytes[2 * PAGE];

	keep("fp32", 2 * PAGE / 4, memory);
	munmap(memory + PAGE, PAGE);
	ck_assert_int_eq(registry_read(&r, epoch(), 0, 0, bytes, PAGE), 0);
	ck_assert_int_eq(registry_read(&r, epoch(), 0, 0, bytes, 2 * PAGE), -EFAULT);
	ck_assert_int_eq(registry_write(&r, epoch(), 0, PAGE, bytes, 8), -EFAULT);
	ck_assert_int_eq(registry_check(&r, epoch(), 0, 0, PAGE), 0);
	ck_assert_int_eq(registry_check(&r, epoch(), 0, 100, PAGE), -EFAULT);
	munmap(memory, PAGE);
}
END_TEST

START_TEST(read_only_memory_is_efault_to_a_writer)
{
	char *memory = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char bytes[8] = { 1 };

	keep("fp32", PAGE / 4, memory);
	ck_assert_int_eq(registry_write(&r, epoch(), 0, 0, bytes, 8), -EFAULT);
	ck_assert_int_eq(registry_read(&r, epoch(), 0, 0, bytes, 8), 0);
	munmap(memory, PAGE);
}
END_TEST

START_TEST(fragments_in_memory_of_their_own_are_one_row)
{
	float a[4] = { 1, 2, 3, 4 }, b[4] = { 5, 6, 7, 8 }, out[8];
	enum frag_dtype dtype;

	ck_assert_int_eq(registry_keep_segment(&r, 0, 0, "grad", FRAG_F32, 12,
					       (struct state_segment){ 4, 4, (uintptr_t)b }),
			 0);
	ck_assert_int_eq(registry_keep_segment(&r, 0, 0, "grad", FRAG_F32, 12,
					       (struct state_segment){ 0, 4, (uintptr_t)a }),
			 0);
	ck_assert_int_eq(registry_keep_segment(&r, 0, 0, "grad", FRAG_F32, 12,
					       (struct state_segment){ 2, 4, (uintptr_t)a }),
			 -EEXIST);
	ck_assert_int_eq(registry_keep_segment(&r, 0, 0, "grad", FRAG_F64, 12,
					       (struct state_segment){ 8, 4, (uintptr_t)a }),
			 -EINVAL);
	ck_assert_int_eq(registry_read(&r, epoch(), row_of("grad"), 0, out, sizeof(out)), 0);
	ck_assert(out[3] == 4 && out[4] == 5);
	ck_assert_int_eq(registry_read(&r, epoch(), row_of("grad"), 0, out, sizeof(out) + 4),
			 -ENODATA);
	ck_assert(registry_is_grad(&r, row_of("grad")));
	ck_assert_ptr_eq(registry_memory(&r, STATE_PARTITION, 0, 0, "grad", 5, 3, &dtype),
			 &b[1]);
	ck_assert_ptr_null(registry_memory(&r, STATE_PARTITION, 0, 0, "grad", 3, 3, &dtype));
}
END_TEST

START_TEST(more_fragments_than_one_system_call_takes)
{
	enum { N = 3000 };
	static float memory[2 * N], out[N];

	for (uint64_t i = 0; i < N; i++) {
		memory[2 * i] = (float)i;
		ck_assert_int_eq(
			registry_keep_segment(
				&r, 0, 0, "grad", FRAG_F32, N,
				(struct state_segment){ i, 1, (uintptr_t)&memory[2 * i] }),
			0);
	}
	ck_assert_int_eq(registry_read(&r, epoch(), 0, 0, out, sizeof(out)), 0);
	for (int i = 0; i < N; i++)
		ck_assert(out[i] == (float)i);
	ck_assert_int_eq(registry_check(&r, epoch(), 0, 0, sizeof(out)), 0);
	out[N - 1] = -1;
	ck_assert_int_eq(registry_write(&r, epoch(), 0, 0, out, sizeof(out)), 0);
	ck_assert(memory[2 * N - 2] == -1);
}
END_TEST

/* ---- the library's own memory ---- */

static void *allocated(const char *key, uint64_t bytes)
{
	void *memory = NULL;

	ck_assert_int_eq(
		registry_alloc(&r, STATE_PARTITION, 0, 0, key, FRAG_U8, bytes, &memory), 0);
	return memory;
}

START_TEST(allocated_memory_is_zeroed_and_aligned)
{
	static const uint8_t zeros[3 * HUGE + 5];

	for (uint64_t bytes = 1; bytes <= sizeof(zeros); bytes = bytes * 5 + 3) {
		char key[16];
		uint8_t *memory;

		snprintf(key, sizeof(key), "k%d", (int)bytes);
		memory = allocated(key, bytes);
		ck_assert_uint_eq((uintptr_t)memory % HUGE, 0);
		ck_assert_int_eq(memcmp(memory, zeros, bytes), 0);
		memset(memory, 0xff, bytes);
	}
}
END_TEST

START_TEST(a_partition_of_nothing_can_be_allocated_and_dropped)
{
	void *memory = allocated("empty", 0);

	ck_assert_ptr_nonnull(memory);
	ck_assert_int_eq(registry_drop(&r, STATE_PARTITION, 0, 0, "empty"), 0);
}
END_TEST

/* The word "key: value kB" of the mapping that begins at memory. */
static long mapping_kb(const void *memory, const char *word)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	char line[512];
	bool here = false;
	long kb = -1;

	while (kb < 0 && fgets(line, sizeof(line), file)) {
		unsigned long start, end;

		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = start <= (uintptr_t)memory && (uintptr_t)memory < end;
		else if (here && !strncmp(line, word, strlen(word)))
			kb = atol(line + strlen(word));
	}
	fclose(file);
	return kb;
}

START_TEST(large_memory_is_in_huge_pages_where_the_machine_gives_them)
{
	char anonymous[32], shared[32];
	uint8_t *memory = allocated("fp32", 4 * HUGE);

	memory_huge_pages(anonymous, shared, sizeof(shared));
	memset(memory, 1, 4 * HUGE);
	ck_assert_uint_gt(mapping_kb(memory, "Size:"), 0);
	if (r.states.nshares)
		ck_assert_int_ge(mapping_kb(memory, "ShmemPmdMapped:"), 0);
	else if (!strcmp(anonymous, "madvise") || !strcmp(anonymous, "always"))
		ck_assert_int_gt(mapping_kb(memory, "AnonHugePages:"), 0);
}
END_TEST

static bool shared_is_huge(void)
{
	char anonymous[32], shared[32];

	memory_huge_pages(anonymous, shared, sizeof(shared));
	return strcmp(shared, "never") && strcmp(shared, "deny") && strcmp(shared, "unknown");
}

START_TEST(memory_is_a_sealed_memfd_only_where_shared_memory_has_huge_pages)
{
	uint8_t *memory = allocated("fp32", 2 * HUGE);

	ck_assert_uint_eq(r.states.nshares, shared_is_huge());
	for (uint32_t i = 0; i < r.states.nshares; i++) {
		const struct state_share *s = &r.states.shares[i];

		ck_assert_uint_eq(s->address, (uintptr_t)memory);
		ck_assert_uint_eq(s->size, 2 * HUGE);
		ck_assert_int_eq(fcntl(s->fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW),
				 F_SEAL_SHRINK | F_SEAL_GROW);
		ck_assert_ptr_eq(mmap(NULL, HUGE, PROT_WRITE, MAP_SHARED, s->fd, 0),
				 MAP_FAILED);
	}
}
END_TEST

START_TEST(dropping_allocated_memory_frees_it)
{
	uint8_t *memory = allocated("fp32", 2 * HUGE);
	struct iovec remote = { memory, 1 };
	uint8_t byte;

	ck_assert_int_eq(memory_read_own(&byte, &remote, 1, 1), 0);
	ck_assert_int_eq(registry_drop(&r, STATE_PARTITION, 0, 0, "fp32"), 0);
	ck_assert_int_eq(memory_read_own(&byte, &remote, 1, 1), -EFAULT);
	ck_assert_uint_eq(r.states.nshares, 0);
}
END_TEST

START_TEST(memory_whose_size_is_no_number_is_enomem)
{
	void *memory = NULL;
	uint64_t before = epoch();

	ck_assert_int_eq(registry_alloc(&r, STATE_PARTITION, 0, 0, "k", FRAG_F64,
					(uint64_t)1 << 61, &memory),
			 -ENOMEM);
	ck_assert_int_eq(
		registry_alloc(&r, STATE_PARTITION, 0, 0, "k", FRAG_U8, UINT64_MAX, &memory),
		-ENOMEM);
	ck_assert_ptr_null(memory);
	ck_assert_uint_eq(epoch(), before);
}
END_TEST

START_TEST(a_forked_child_finds_an_empty_control_page)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(r.control->cookie[0] || r.control->cookie[1]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_ne(r.control->cookie[0], 0);
}
END_TEST

/* Address space over the same few bytes again and again, but for a last page of its own. */
static uint8_t *map_over_and_over(uint64_t bytes)
{
	enum { FEW = 64 << 20 };
	uint8_t *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			   -1, 0);
	int fd = memfd_create("few", MFD_CLOEXEC);

	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert_int_eq(ftruncate(fd, FEW), 0);
	for (uint64_t done = 0; done < bytes - PAGE; done += FEW)
		ck_assert_ptr_ne(mmap(at + done, u64_min(FEW, bytes - PAGE - done),
				      PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
				 MAP_FAILED);
	ck_assert_int_eq(mprotect(at + bytes - PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
	close(fd);
	return at;
}

START_TEST(a_fragment_larger_than_one_system_call_takes_is_copied_whole)
{
	const uint64_t bytes = ((uint64_t)2 << 30) + PAGE;
	uint8_t *memory = map_over_and_over(bytes), *copy = map_over_and_over(bytes);

	ck_assert_int_eq(keep("fp32", bytes / 4, memory), 0);
	memory[bytes - 1] = 7;
	ck_assert_int_eq(registry_read(&r, epoch(), 0, 0, copy, bytes), 0);
	ck_assert_uint_eq(copy[bytes - 1], 7);
	copy[bytes - 1] = 8;
	ck_assert_int_eq(registry_write(&r, epoch(), 0, 0, copy, bytes), 0);
	ck_assert_uint_eq(memory[bytes - 1], 8);
	munmap(memory, bytes);
	munmap(copy, bytes);
}
END_TEST

static TCase *kept(void)
{
	TCase *t = tcase_create("kept");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, every_change_begins_an_epoch_and_old_ones_are_stale);
	tcase_add_test(t, what_changes_nothing_begins_no_epoch);
	tcase_add_test(t, written_bytes_land_and_what_does_not_fit_does_not);
	tcase_add_test(t, no_tier_has_a_row_that_is_gone);
	tcase_add_test(t, memory_of_a_row_that_has_become_a_devices_is_not_written);
	tcase_add_test(t, a_segment_is_replaced_only_as_it_is_and_where_the_others_are);
	tcase_add_test(t, memory_freed_behind_our_back_is_efault);
	tcase_add_test(t, read_only_memory_is_efault_to_a_writer);
	tcase_add_test(t, fragments_in_memory_of_their_own_are_one_row);
	tcase_add_test(t, more_fragments_than_one_system_call_takes);
	tcase_add_test(t, a_fragment_larger_than_one_system_call_takes_is_copied_whole);
	return t;
}

static TCase *own(void)
{
	TCase *t = tcase_create("own");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, allocated_memory_is_zeroed_and_aligned);
	tcase_add_test(t, a_partition_of_nothing_can_be_allocated_and_dropped);
	tcase_add_test(t, large_memory_is_in_huge_pages_where_the_machine_gives_them);
	tcase_add_test(t, memory_is_a_sealed_memfd_only_where_shared_memory_has_huge_pages);
	tcase_add_test(t, dropping_allocated_memory_frees_it);
	tcase_add_test(t, memory_whose_size_is_no_number_is_enomem);
	tcase_add_test(t, a_forked_child_finds_an_empty_control_page);
	return t;
}

int main(void)
{
	Suite *s = suite_create("registry");

	suite_add_tcase(s, kept());
	return run_suite(s, own());
}
