/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/machine.h"
#include "engine/launch/launch.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static struct launch l;
static char why[256];

/* "NAME=value", up to NULL. */
static int launch_with(const struct frag_config *config, const char *const *variables)
{
	clearenv();
	for (; variables && *variables; variables++)
		ck_assert_int_eq(putenv((char *)(uintptr_t)*variables), 0);
	memset(&l, 0x55, sizeof(l));
	why[0] = '\0';
	return launch_read(&l, config, why, sizeof(why));
}

#define LAUNCH(...) launch_with(NULL, (const char *const[]){ __VA_ARGS__, NULL })

static void expect_bad(int rc, const char *text)
{
	ck_assert_int_eq(rc, -EINVAL);
	ck_assert_msg(strstr(why, text) != NULL, "\"%s\" does not name %s", why, text);
	ck_assert_uint_eq(l.rank, 0x55555555); /* untouched */
}

START_TEST(torchrun_is_understood)
{
	ck_assert_int_eq(LAUNCH("RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1",
				"MASTER_ADDR=node-0.x", "MASTER_PORT=29500",
				"TORCHELASTIC_RUN_ID=none"),
			 0);
	ck_assert_uint_eq(l.rank, 5);
	ck_assert_uint_eq(l.world, 8);
	ck_assert_str_eq(l.master_addr, "node-0.x");
	ck_assert_uint_eq(l.port, 0); /* MASTER_PORT is its own */
	ck_assert_str_eq(l.job, "node-0.x-29500");
	ck_assert_str_eq(l.rendezvous, "");
	ck_assert_str_eq(l.key_file, "");
	ck_assert(!l.plain);
	ck_assert_int_eq(LAUNCH("RANK=5", "WORLD_SIZE=8", "TORCHELASTIC_RUN_ID=run-7"), 0);
	ck_assert_str_eq(l.job, "run-7");
}
END_TEST

START_TEST(mpirun_is_understood)
{
	ck_assert_int_eq(LAUNCH("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4",
				"PMIX_RANK=1", "PMIX_NAMESPACE=prterun-host-99@1"),
			 0);
	ck_assert_uint_eq(l.rank, 3);
	ck_assert_uint_eq(l.world, 4);
	ck_assert_str_eq(l.job, "prterun-host-99@1");
	ck_assert_str_eq(l.master_addr, "");
	ck_assert_int_eq(LAUNCH("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4",
				"OMPI_MCA_ess_base_jobid=3141"),
			 0);
	ck_assert_str_eq(l.job, "3141");
	ck_assert_int_eq(LAUNCH("PMI_RANK=1", "PMI_SIZE=2"), 0);
	ck_assert_uint_eq(l.rank, 1);
	ck_assert_uint_eq(l.world, 2);
}
END_TEST

START_TEST(srun_is_understood)
{
	ck_assert_int_eq(LAUNCH("SLURM_PROCID=2", "SLURM_NTASKS=16", "SLURM_STEP_NUM_TASKS=4",
				"SLURM_JOB_ID=123", "SLURM_STEP_ID=0",
				"SLURM_LAUNCH_NODE_IPADDR=10.1.2.3"),
			 0);
	ck_assert_uint_eq(l.rank, 2);
	ck_assert_uint_eq(l.world, 4);
	ck_assert_str_eq(l.job, "123.0");
	ck_assert_str_eq(l.master_addr, "10.1.2.3");
	ck_assert_int_eq(LAUNCH("SLURM_PROCID=2", "SLURM_NTASKS=16", "SLURM_JOB_ID=123"), 0);
	ck_assert_uint_eq(l.world, 16);
	ck_assert_str_eq(l.job, "123");
	ck_assert_int_eq(LAUNCH("PMIX_RANK=7", "SLURM_PROCID=2", "SLURM_NTASKS=16"), 0);
	ck_assert_uint_eq(l.rank, 7);
}
END_TEST

START_TEST(our_own_variables_win_over_launchers)
{
	ck_assert_int_eq(LAUNCH("RANK=5", "WORLD_SIZE=8", "FRAG_RANK=1", "FRAG_WORLD_SIZE=2",
				"MASTER_ADDR=a", "FRAG_MASTER_ADDR=b", "FRAG_PORT=4000",
				"FRAG_JOB_ID=mine", "TORCHELASTIC_RUN_ID=other",
				"FRAG_KEY_FILE=/k", "FRAG_RDZV=file:/shared/r", "FRAG_HOST=h1",
				"FRAG_PLAIN=1"),
			 0);
	ck_assert_uint_eq(l.rank, 1);
	ck_assert_uint_eq(l.world, 2);
	ck_assert_str_eq(l.master_addr, "b");
	ck_assert_uint_eq(l.port, 4000);
	ck_assert_str_eq(l.job, "mine");
	ck_assert_str_eq(l.key_file, "/k");
	ck_assert_str_eq(l.rendezvous, "/shared/r");
	ck_assert_str_eq(l.host, "h1");
	ck_assert(l.plain);
}
END_TEST

START_TEST(the_config_wins_over_all)
{
	struct frag_config config = { .size = sizeof(config),
				      .rank = "0",
				      .world = 3,
				      .job = "given",
				      .master_addr = "c",
				      .port = 77,
				      .key_file = "/given" };

	ck_assert_int_eq(
		launch_with(&config, (const char *const[]){ "FRAG_RANK=9", "FRAG_WORLD_SIZE=2",
							    "FRAG_MASTER_ADDR=b", "FRAG_PORT=5",
							    "FRAG_JOB_ID=mine",
							    "FRAG_KEY_FILE=/k", NULL }),
		0);
	ck_assert_uint_eq(l.rank, 0);
	ck_assert_uint_eq(l.world, 3);
	ck_assert_str_eq(l.job, "given");
	ck_assert_str_eq(l.master_addr, "c");
	ck_assert_uint_eq(l.port, 77);
	ck_assert_str_eq(l.key_file, "/given");
}
END_TEST

START_TEST(a_config_of_an_older_size_is_read_to_its_end)
{
	struct frag_config config = { .size = offsetof(struct frag_config, world),
				      .rank = "1",
				      .world = 3,
				      .job = (const char *)8 };

	ck_assert_int_eq(launch_with(&config, (const char *const[]){ "WORLD_SIZE=2", NULL }),
			 0);
	ck_assert_uint_eq(l.rank, 1);
	ck_assert_uint_eq(l.world, 2);
}
END_TEST

START_TEST(rank_and_world_come_from_one_launcher)
{
	expect_bad(LAUNCH("RANK=0", "SLURM_NTASKS=4"), "RANK");
	ck_assert_int_eq(LAUNCH("FRAG_RANK=0", "SLURM_NTASKS=4"), 0);
	ck_assert_uint_eq(l.world, 4);
	ck_assert_int_eq(LAUNCH("RANK=1", "WORLD_SIZE=2", "SLURM_PROCID=0", "SLURM_NTASKS=1"),
			 0);
	ck_assert_uint_eq(l.rank, 1);
	ck_assert_uint_eq(l.world, 2);
}
END_TEST

START_TEST(what_is_wrong_is_named)
{
	expect_bad(launch_with(NULL, NULL), "FRAG_RANK");
	expect_bad(
		LAUNCH("RANK=0"),
		"RANK is set, but not the number of ranks: set WORLD_SIZE or FRAG_WORLD_SIZE");
	expect_bad(LAUNCH("PMI_RANK=0"), "set PMI_SIZE or FRAG_WORLD_SIZE");
	expect_bad(LAUNCH("FRAG_RANK=0"), "set FRAG_WORLD_SIZE");
	expect_bad(LAUNCH("RANK=x", "WORLD_SIZE=2"), "RANK=x");
	expect_bad(LAUNCH("RANK=-1", "WORLD_SIZE=2"), "RANK=-1");
	expect_bad(LAUNCH("RANK=1", "WORLD_SIZE=2x"), "WORLD_SIZE=2x");
	expect_bad(LAUNCH("RANK=2", "WORLD_SIZE=2"), "WORLD_SIZE=2");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=0"), "WORLD_SIZE");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=65537"), "WORLD_SIZE");
	expect_bad(LAUNCH("RANK=99999999999999999999", "WORLD_SIZE=2"), "RANK");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_PORT=65536"), "FRAG_PORT");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=a b"), "MASTER_ADDR");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_RDZV=tcp:x"), "FRAG_RDZV");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_RDZV=file:"), "FRAG_RDZV");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_PLAIN=yes"), "FRAG_PLAIN");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_TRANSPORT=ucx"),
		   "FRAG_TRANSPORT=ucx is not zmq");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_BULK=ucx"),
		   "FRAG_BULK=ucx is neither tls nor zmq");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_PTRACER=foo"),
		   "FRAG_PTRACER=foo is not any");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_GATHER=hots"),
		   "FRAG_GATHER=hots is not host");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_BIND=3-1"),
		   "FRAG_BIND=3-1: a range ends before it begins");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_JOB_ID=a/b"), "FRAG_JOB_ID");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_JOB_ID=..x"), "FRAG_JOB_ID");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_JOB_ID=a\nb"), "FRAG_JOB_ID");
}
END_TEST

START_TEST(what_is_too_long_is_refused)
{
	char job[200] = "FRAG_JOB_ID=", run[200] = "TORCHELASTIC_RUN_ID=",
	     host[200] = "FRAG_HOST=";

	memset(job + strlen(job), 'j', 128);
	memset(run + strlen(run), '/', 60);
	memset(host + strlen(host), 'h', 64);
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", job), "FRAG_JOB_ID");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", run), "TORCHELASTIC_RUN_ID");
	expect_bad(LAUNCH("RANK=0", "WORLD_SIZE=1", host), "FRAG_HOST");
	job[strlen(job) - 1] = '\0';
	ck_assert_int_eq(LAUNCH("RANK=0", "WORLD_SIZE=1", job), 0);
	ck_assert_uint_eq(strlen(l.job), 127);
}
END_TEST

START_TEST(a_launchers_id_becomes_a_file_name)
{
	ck_assert_int_eq(LAUNCH("RANK=0", "WORLD_SIZE=1", "TORCHELASTIC_RUN_ID=../a b%\n"), 0);
	ck_assert_str_eq(l.job, "%2E.%2Fa%20b%25%0A");
}
END_TEST

START_TEST(a_job_without_an_id_is_named_by_its_port)
{
	ck_assert_int_eq(LAUNCH("RANK=0", "WORLD_SIZE=1"), 0);
	ck_assert_str_eq(l.job, "default");
	ck_assert_int_eq(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_PORT=21018"), 0);
	ck_assert_str_eq(l.job, "localhost-21018");
	ck_assert_int_eq(LAUNCH("RANK=0", "WORLD_SIZE=1", "MASTER_PORT=29500", "FRAG_PORT=1"),
			 0);
	ck_assert_str_eq(l.job, "localhost-29500");
}
END_TEST

START_TEST(an_empty_variable_is_as_good_as_none)
{
	ck_assert_int_eq(LAUNCH("FRAG_RANK=", "RANK=1", "WORLD_SIZE=2",
				"FRAG_JOB_ID=", "FRAG_RDZV=", "FRAG_PLAIN=", "MASTER_ADDR="),
			 0);
	ck_assert_uint_eq(l.rank, 1);
	ck_assert_str_eq(l.job, "default");
}
END_TEST

START_TEST(the_host_is_this_machine)
{
	char id[MACHINE_ID];

	machine_id(id);
	ck_assert_uint_gt(strlen(id), 8);
	ck_assert_int_eq(LAUNCH("RANK=0", "WORLD_SIZE=1"), 0);
	ck_assert_str_eq(l.host, id);
}
END_TEST

/* sysfs, made up: a disk with a partition, plugged into what says its node. */
START_TEST(the_node_of_a_disk_is_that_of_what_it_is_plugged_into)
{
	char sys[] = "/tmp/fragfs-sys-XXXXXX", command[1024];
	struct cpus cpus;
	struct stat st;

	ck_assert_ptr_nonnull(mkdtemp(sys));
	ck_assert_int_eq(stat(sys, &st), 0);
	snprintf(command, sizeof(command),
		 "cd %s && mkdir -p dev/block devices/pci0/nvme0/nvme0n1/nvme0n1p1 && "
		 "ln -s ../../devices/pci0/nvme0/nvme0n1/nvme0n1p1 dev/block/%u:%u",
		 sys, major(st.st_dev), minor(st.st_dev));
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(machine_disk_node(sys, sys), -ENOENT);
	snprintf(command, sizeof(command),
		 "cd %s/devices/pci0 && echo -1 >nvme0/numa_node && echo 1 >numa_node", sys);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(machine_disk_node(sys, sys), 1);
	snprintf(command, sizeof(command),
		 "cd %s/devices && mkdir -p system/node/node1 system/node/node2 && "
		 "echo 2-3,6-7 >system/node/node1/cpulist && echo >system/node/node2/cpulist",
		 sys);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(machine_node_cpus(sys, 1, &cpus), 0);
	ck_assert(cpus_has(&cpus, 2) && cpus_has(&cpus, 3) && !cpus_has(&cpus, 4) &&
		  cpus_has(&cpus, 6) && cpus_has(&cpus, 7) && !cpus_has(&cpus, 8));
	ck_assert_int_eq(machine_node_cpus(sys, 2, &cpus), -ENOENT);
	ck_assert_int_eq(machine_node_cpus(sys, 3, &cpus), -ENOENT);
	ck_assert_int_eq(machine_disk_node("/nowhere", sys), -ENOENT);
	ck_assert_int_eq(machine_disk_node(sys, "/nowhere/at/all"), -ENOENT);
	snprintf(command, sizeof(command), "rm -r %s", sys);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

static void expect_unbound(const char *why_not)
{
	CLEANUP(free) char *text = log_text();

	ck_assert(!l.is_bound);
	ck_assert_ptr_nonnull(strstr(text, why_not));
}

/* /proc is on no disk. */
START_TEST(threads_are_not_bound_to_a_disk_whose_node_is_not_known)
{
	ck_assert_int_eq(LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_BIND=disk"), 0);
	expect_unbound("FRAG_BIND=disk: no states are on NVMe: threads are not bound");
	ck_assert_int_eq(
		LAUNCH("RANK=0", "WORLD_SIZE=1", "FRAG_BIND=disk", "FRAG_SWAP_DIR=/proc"), 0);
	expect_unbound("FRAG_BIND=disk: the disk's NUMA node is not known");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("launch");
	TCase *t = tcase_create("launch");

	tcase_add_test(t, torchrun_is_understood);
	tcase_add_test(t, mpirun_is_understood);
	tcase_add_test(t, srun_is_understood);
	tcase_add_test(t, our_own_variables_win_over_launchers);
	tcase_add_test(t, the_config_wins_over_all);
	tcase_add_test(t, a_config_of_an_older_size_is_read_to_its_end);
	tcase_add_test(t, rank_and_world_come_from_one_launcher);
	tcase_add_test(t, what_is_wrong_is_named);
	tcase_add_test(t, what_is_too_long_is_refused);
	tcase_add_test(t, a_launchers_id_becomes_a_file_name);
	tcase_add_test(t, a_job_without_an_id_is_named_by_its_port);
	tcase_add_test(t, an_empty_variable_is_as_good_as_none);
	tcase_add_test(t, the_host_is_this_machine);
	tcase_add_test(t, the_node_of_a_disk_is_that_of_what_it_is_plugged_into);
	tcase_add_test(t, threads_are_not_bound_to_a_disk_whose_node_is_not_known);
	return run_suite(s, t);
}
