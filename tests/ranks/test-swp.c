/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/swap/swapper.h"
#include "tests/ranks/job.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A rank's states, to and from a folder of DeepSpeed's optimizer swapper. */

enum { WORLD = 2, PARAMS = 6, SHARD_PAD = 1024 };

static const struct job_param params[PARAMS] = {
	{ "a", .ndim = 2, .shape = { 15, 70 } },
	{ "frozen", .ndim = 1, .shape = { 9 }, .flags = FRAG_FROZEN },
	{ "b", .ndim = 1, .shape = { 3 } },
	{ "c", .ndim = 1, .shape = { 701 } },
	{ "empty", .ndim = 1, .shape = { 0 } },
	{ "d", .ndim = 2, .shape = { 33, 11 } },
};

/* Sub-groups of the first group: a and b, then c; d is alone in the second group, as a
 * parameter without weight decay.
 */
static const struct job_group groups[] = {
	{ .stage = 3, .sub_group_size = 526, .nparams = 5, .params = { 0, 1, 2, 3, 4 } },
	{ .stage = 3, .nparams = 1, .params = { 5 } },
};
static const char *const files[] = { "0_2", "3_3", "5_5" };

static struct job job;
static char folder[WORLD][4096];

static void setup(void)
{
	static const struct job_key keys[] = { { "fp32", FRAG_F32, JOB_KEEP },
					       { "grad", FRAG_F32, JOB_KEEP },
					       { "exp_avg", FRAG_F32, JOB_ALLOC },
					       { "exp_avg_sq", FRAG_F32, JOB_KEEP } };

	job_open(&job, &(struct job_spec){ .world = WORLD,
					   JOB_PARAMS(params),
					   JOB_GROUPS(groups),
					   JOB_KEYS(keys) });
	for (int i = 0; i < WORLD; i++) {
		snprintf(folder[i], sizeof(folder[i]), "%s/rank%d.XXXXXX",
			 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", i);
		ck_assert_ptr_nonnull(mkdtemp(folder[i]));
	}
}

static void teardown(void)
{
	job_close(&job);
}

static struct frag_swp config(uint32_t rank)
{
	return (struct frag_swp){ .size = sizeof(struct frag_swp),
				  .folder = folder[rank],
				  .smallest = 1 };
}

static int64_t export(uint32_t rank)
{
	struct frag_swp c = config(rank);

	return frag_swp_export(job_frag(&job, rank), &c);
}

static int64_t import(uint32_t rank)
{
	struct frag_swp c = config(rank);

	return frag_swp_import(job_frag(&job, rank), &c);
}

static char *path_of(uint32_t rank, const char *file)
{
	static char path[5000];

	snprintf(path, sizeof(path), "%s/%s.tensor.swp", folder[rank], file);
	return path;
}

static bool is_of(const struct job_memory *m)
{
	return m->kind == STATE_PARTITION && strcmp(job.keys[m->key].key, "grad") != 0;
}

static void spoil(void)
{
	for (uint32_t r = 0; r < WORLD; r++)
		for (uint32_t i = 0; i < job.ranks[r].nmemory; i++) {
			struct job_memory *m = &job.ranks[r].memory[i];

			if (is_of(m))
				memset(m->bytes_at, 0x77, m->bytes);
		}
}

static bool was_said(const char *part)
{
	static char text[16384];

	log_tail(text, sizeof(text));
	return strstr(text, part) != NULL;
}

START_TEST(what_was_exported_is_imported_bit_for_bit)
{
	for (uint32_t r = 0; r < WORLD; r++)
		ck_assert_int_eq(export(r), 9);
	spoil();
	for (uint32_t r = 0; r < WORLD; r++)
		ck_assert_int_eq(import(r), 9);
	job_check(&job);
}
END_TEST

static struct swapper_figures figures(void)
{
	struct swapper_figures f;

	swapper_figures(job_frag(&job, 0)->engine->registry.swapper, &f);
	return f;
}

/* Each slice is read once or written once, not read, changed and written for each piece of a
 * file.
 */
START_TEST(states_on_nvme_are_exported_and_imported)
{
	static const struct job_key swapped[] = { { "fp32", FRAG_F32, JOB_SWAP },
						  { "exp_avg", FRAG_F32, JOB_SWAP } };
	struct frag *f;

	job_close(&job);
	job_open(&job, &(struct job_spec){ .world = WORLD,
					   JOB_PARAMS(params),
					   JOB_GROUPS(groups),
					   JOB_KEYS(swapped) });
	f = job_frag(&job, 0);
	job_boundary(&job);
	ck_assert_int_eq(export(0), 6);
	for (uint32_t i = 0; i < 6; i++)
		ck_assert_int_eq(frag_state_clear(f, i / 4, i / 2 % 2, swapped[i % 2].key), 0);
	job_boundary(&job);
	ck_assert_int_eq(import(0), 6);
	ck_assert_uint_eq(figures().edits, 0);
	job_boundary(&job);
	job_check(&job);
}
END_TEST

/* Checks the names of the files, and that the master begins at byte 0. */
START_TEST(files_are_as_deepspeed_reads_them)
{
	struct frag_swp c = config(1);

	c.threads = 3;
	ck_assert_int_eq(frag_swp_export(job_frag(&job, 1), &c), 9);
	for (uint32_t i = 0; i < ARRAY_SIZE(files); i++) {
		static const char *const keys[] = { "", "exp_avg-", "exp_avg_sq-" };
		struct job_memory *m = job_memory(&job, 1, i / 2, i % 2, "fp32");
		CLEANUP(free) uint8_t *bytes = malloc(m->bytes);
		int fd = open(path_of(1, files[i]), O_RDONLY);

		ck_assert_int_eq(pread(fd, bytes, m->bytes, 0), (ssize_t)m->bytes);
		ck_assert_mem_eq(bytes, m->bytes_at, m->bytes);
		close(fd);
		for (int k = 0; k < 3; k++) {
			char file[64];
			struct stat st;

			snprintf(file, sizeof(file), "%s%s", keys[k], files[i]);
			ck_assert_int_eq(stat(path_of(1, file), &st), 0);
			ck_assert_uint_eq((uint64_t)st.st_size,
					  u64_div_ceil(m->bytes, 3 * SHARD_PAD) * 3 *
						  SHARD_PAD);
			ck_assert_uint_eq(st.st_mode & 0777, 0600);
		}
	}
	ck_assert_int_eq(import(1), 9);
	job_check(&job);
}
END_TEST

START_TEST(what_deepspeed_would_not_swap_is_not_written_and_not_missed)
{
	struct frag_swp c = config(0);

	c.smallest = 1000; /* 3_3 has 351 elements, 5_5 182 */
	ck_assert_int_eq(frag_swp_export(job_frag(&job, 0), &c), 6);
	ck_assert_int_ne(access(path_of(0, "5_5"), F_OK), 0);
	ck_assert_int_eq(frag_swp_import(job_frag(&job, 0), &c), 6);
	c.smallest = 0;
	ck_assert_int_eq(frag_swp_export(job_frag(&job, 1), &c), 0);
	job_check(&job);
}
END_TEST

START_TEST(deepspeeds_own_numbers_of_parameters_name_the_files)
{
	static const uint64_t numbers[PARAMS] = { 40, 41, 42, 7, 99, 0 };
	struct frag_swp c = config(0);

	c.numbers = numbers;
	ck_assert_int_eq(frag_swp_export(job_frag(&job, 0), &c), 9);
	ck_assert_int_eq(access(path_of(0, "exp_avg-40_42"), F_OK), 0);
	ck_assert_int_eq(access(path_of(0, "7_7"), F_OK), 0);
	ck_assert_int_eq(access(path_of(0, "0_0"), F_OK), 0);
	spoil();
	export(1);
	ck_assert_int_eq(frag_swp_import(job_frag(&job, 0), &c), 9);
	ck_assert_int_eq(import(0), -EINVAL);
	ck_assert(was_said("this rank has no sub-group of the parameters"));
}
END_TEST

START_TEST(a_state_that_is_not_there_is_made)
{
	struct frag *f = job_frag(&job, 0);
	float *memory;
	enum frag_dtype dtype;

	ck_assert_int_eq(export(0), 9);
	for (uint32_t i = 0; i < ARRAY_SIZE(files); i++) {
		char from[5000], to[64];

		snprintf(from, sizeof(from), "%s", path_of(0, files[i]));
		snprintf(to, sizeof(to), "max_exp_avg_sq-%s", files[i]);
		ck_assert_int_eq(link(from, path_of(0, to)), 0);
	}
	ck_assert_int_eq(import(0), 12);
	for (uint32_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct job_memory *m = job_memory(&job, 0, i / 2, i % 2, "fp32");

		ck_assert_int_eq(frag_local_view(f,
						 i == 0   ? job_number(&job, 0, 0)
						 : i == 1 ? job_number(&job, 0, 3)
							  : job_number(&job, 0, 5),
						 "max_exp_avg_sq", (void **)&memory, &dtype),
				 0);
		ck_assert_int_eq(dtype, FRAG_F32);
		ck_assert_mem_eq(memory, m->bytes_at, 4);
	}
}
END_TEST

/* ---- refusals, which change nothing ---- */

static void refused(int error, const char *line)
{
	spoil();
	ck_assert_int_eq(import(0), error);
	ck_assert_msg(was_said(line), "not said: %s", line);
	for (uint32_t i = 0; i < job.ranks[0].nmemory; i++)
		if (is_of(&job.ranks[0].memory[i]))
			ck_assert_uint_eq(job.ranks[0].memory[i].bytes_at[0], 0x77);
}

START_TEST(a_folder_that_lacks_a_file_is_refused)
{
	ck_assert_int_eq(export(0), 9);
	ck_assert_int_eq(unlink(path_of(0, "exp_avg-3_3")), 0);
	refused(-ENOENT, "exp_avg-3_3.tensor.swp: No such file");
	ck_assert_int_eq(unlink(path_of(0, "5_5")), 0);
	refused(-ENOENT, ": 5_5.tensor.swp: No such file");
}
END_TEST

START_TEST(a_folder_with_a_file_of_another_size_or_kind_is_refused)
{
	ck_assert_int_eq(export(0), 9);
	ck_assert_int_eq(truncate(path_of(0, "exp_avg_sq-5_5"), 512), 0);
	refused(-EINVAL, "exp_avg_sq-5_5.tensor.swp: has 512 bytes");
	ck_assert_int_eq(unlink(path_of(0, "exp_avg_sq-5_5")), 0);
	ck_assert_int_eq(symlink("3_3.tensor.swp", path_of(0, "exp_avg_sq-5_5")), 0);
	refused(-ELOOP, "exp_avg_sq-5_5.tensor.swp: a symbolic link");
}
END_TEST

START_TEST(a_folder_of_another_layout_is_refused)
{
	int fd = creat(path_of(0, "0_5"), 0600);

	close(fd);
	refused(-EINVAL, "0_5.tensor.swp: this rank has no sub-group of the parameters 0 to 5");
}
END_TEST

START_TEST(memory_that_is_gone_is_an_error_with_its_name)
{
	struct frag *f = job_frag(&job, 0);

	ck_assert_int_eq(export(0), 9);
	ck_assert_int_eq(frag_state_drop(f, job.ranks[0].group[1], 0, "exp_avg_sq"), 0);
	ck_assert_int_eq(frag_state_keep(f, job.ranks[0].group[1], 0, "exp_avg_sq", FRAG_F32,
					 (void *)4096),
			 0);
	ck_assert_int_eq(import(0), -EFAULT);
	ck_assert(was_said("exp_avg_sq of sub-group 1.0: Bad address"));
	ck_assert_int_eq(export(0), -EFAULT);
	ck_assert(was_said("exp_avg_sq-5_5.tensor.swp: Bad address"));
}
END_TEST

/* Without memory at the n-th call, for each n. */
START_TEST(a_lack_of_memory_is_an_error_and_the_next_time_all_is_well)
{
	int64_t (*const calls[])(uint32_t rank) = { export, import };
	unsigned n = 0, failed;
	int64_t rc;

	ck_assert_int_eq(export(0), 9);
	do {
		scarce_begin(++n, 1);
		rc = calls[_i](0);
		failed = scarce_end();
		ck_assert_msg(rc == (failed ? -ENOMEM : 9), "%u: %d", n, (int)rc);
	} while (failed);
	ck_assert_uint_gt(n, 3);
	ck_assert_int_eq(import(0), 9);
	job_check(&job);
}
END_TEST

START_TEST(misuse_is_an_errno)
{
	struct frag_swp c = config(0);

	ck_assert_int_eq(frag_swp_import(NULL, &c), -EINVAL);
	ck_assert_int_eq(frag_swp_export(job_frag(&job, 0), NULL), -EINVAL);
	c.threads = 257;
	ck_assert_int_eq(frag_swp_export(job_frag(&job, 0), &c), -EINVAL);
	c = config(0);
	c.folder = NULL;
	ck_assert_int_eq(frag_swp_export(job_frag(&job, 0), &c), -EINVAL);
	c.folder = "/nowhere/at/all";
	ck_assert_int_eq(frag_swp_import(job_frag(&job, 0), &c), -ENOENT);
	ck_assert(was_said("/nowhere/at/all: No such file or directory"));
}
END_TEST

START_TEST(a_job_without_stage_3_has_no_such_files)
{
	static const struct job_group flat[] = {
		{ .stage = 2, .nparams = 1, .params = { 0 } }
	};
	struct frag_swp c = config(0);

	job_close(&job);
	job_open(&job, &(struct job_spec){
			       .world = 1, .params = params, .nparams = 1, JOB_GROUPS(flat) });
	ck_assert_int_eq(frag_swp_export(job_frag(&job, 0), &c), -ENOENT);
	ck_assert(was_said("this rank has no group of ZeRO stage 3"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("swp");
	TCase *tcase = tcase_create("swp");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_was_exported_is_imported_bit_for_bit);
	tcase_add_test(tcase, states_on_nvme_are_exported_and_imported);
	tcase_add_test(tcase, files_are_as_deepspeed_reads_them);
	tcase_add_test(tcase, what_deepspeed_would_not_swap_is_not_written_and_not_missed);
	tcase_add_test(tcase, deepspeeds_own_numbers_of_parameters_name_the_files);
	tcase_add_test(tcase, a_state_that_is_not_there_is_made);
	tcase_add_test(tcase, a_folder_that_lacks_a_file_is_refused);
	tcase_add_test(tcase, a_folder_with_a_file_of_another_size_or_kind_is_refused);
	tcase_add_test(tcase, a_folder_of_another_layout_is_refused);
	tcase_add_test(tcase, memory_that_is_gone_is_an_error_with_its_name);
	tcase_add_loop_test(tcase, a_lack_of_memory_is_an_error_and_the_next_time_all_is_well,
			    0, 2);
	tcase_add_test(tcase, misuse_is_an_errno);
	tcase_add_test(tcase, a_job_without_stage_3_has_no_such_files);
	return run_suite(suite, tcase);
}
