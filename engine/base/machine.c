/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static ssize_t read_text(const char *path, char *text, size_t size)
{
	CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (n < 0)
		return -errno;
	text[n] = '\0';
	return n;
}

void machine_id(char id[MACHINE_ID])
{
	char boot[40];
	struct stat pids;

	if (read_text("/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) <= 0 &&
	    gethostname(boot, sizeof(boot)))
		boot[0] = '\0';
	boot[sizeof(boot) - 1] = '\0';
	boot[strcspn(boot, "\n")] = '\0';
	if (stat("/proc/self/ns/pid", &pids))
		pids.st_ino = 0;
	snprintf(id, MACHINE_ID, "%s-%llu", boot, (unsigned long long)pids.st_ino);
}

int machine_start_time(pid_t pid, uint64_t *start_time)
{
	char path[64], text[1024], *field;
	ssize_t n = -ESRCH;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (pid > 0)
		n = read_text(path, text, sizeof(text));
	if (n <= 0)
		return !n || n == -ENOENT ? -ESRCH : (int)n;
	/* ends field 2, the command's name, which may have spaces and brackets */
	field = strrchr(text, ')');
	/* a zombie: it has ended, and nobody has waited for it */
	if (field && !strncmp(field, ") Z", 3))
		return -ESRCH;
	for (int i = 2; field && i < 22; i++)
		field = strchr(field + 1, ' ');
	if (!field)
		return -ESRCH;
	*start_time = strtoull(field + 1, NULL, 10);
	return 0;
}

/* Returns the NUMA node of the device in that folder of sysfs; -1: the folder names none. */
static int node_in(const char *device)
{
	char path[PATH_MAX + 16], text[16];

	snprintf(path, sizeof(path), "%s/numa_node", device);
	return read_text(path, text, sizeof(text)) > 0 ? atoi(text) : -1;
}

static bool go_up(char *path)
{
	char *end = strrchr(path, '/');

	if (!end || end == path)
		return false;
	*end = '\0';
	return true;
}

int machine_disk_node(const char *sysfs, const char *folder)
{
	char name[PATH_MAX], device[PATH_MAX];
	struct stat st;
	int node;

	if (stat(folder, &st))
		return -errno;
	snprintf(name, sizeof(name), "%s/dev/block/%u:%u", sysfs, major(st.st_dev),
		 minor(st.st_dev));
	if (!realpath(name, device))
		return -ENOENT;
	do /* sysfs has a partition in its disk's folder, and a disk in its controller's */
		node = node_in(device);
	while (node < 0 && go_up(device));
	return node < 0 ? -ENOENT : node;
}

int machine_node_cpus(const char *sysfs, unsigned node, struct cpus *cpus)
{
	char path[PATH_MAX], text[CPUS_TEXT], why[128];
	ssize_t n;

	snprintf(path, sizeof(path), "%s/devices/system/node/node%u/cpulist", sysfs, node);
	n = read_text(path, text, sizeof(text));
	text[n > 0 ? strcspn(text, "\n") : 0] = '\0';
	return cpus_parse(cpus, text, why, sizeof(why)) ? -ENOENT : 0;
}

uint64_t machine_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
}
