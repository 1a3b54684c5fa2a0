/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"
#include "mount-helpers/mounts.h"
#include "mount-helpers/settings.h"

#include "engine/base/base.h"
#include "engine/base/mount.h"
#include "engine/launch/jobfile.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <liburing.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { FILES_ENOUGH = 4096 };

#define LOCKED_ENOUGH (64ULL << 20)

enum { COLUMN_WHAT, COLUMN_STATE, COLUMN_FOUND, COLUMN_MEND };

const struct listing_column doctor_columns[] = {
	[COLUMN_WHAT] = { "what", LISTING_TEXT },
	[COLUMN_STATE] = { "state", LISTING_TEXT },
	[COLUMN_FOUND] = { "found", LISTING_TEXT },
	[COLUMN_MEND] = { "mend", LISTING_TEXT },
	{ NULL },
};

enum state {
	GOOD,
	SLOW, /* works, but could be faster or do more */
	BAD,
};

struct doctor {
	struct listing *t;
	bool bad;
};

/* Adds a line; mend NULL: there is nothing to do. */
static void say(struct doctor *d, const char *what, enum state state, const char *mend,
		const char *format, ...) __attribute__((format(printf, 5, 6)));

static void say(struct doctor *d, const char *what, enum state state, const char *mend,
		const char *format, ...)
{
	static const char *const names[] = { "good", "could be better", "bad" };
	char found[PATH_MAX + 256];
	va_list list;

	va_start(list, format);
	vsnprintf(found, sizeof(found), format, list);
	va_end(list);
	listing_row(d->t);
	listing_text(d->t, COLUMN_WHAT, what);
	listing_text(d->t, COLUMN_STATE, names[state]);
	listing_text(d->t, COLUMN_FOUND, found);
	listing_text(d->t, COLUMN_MEND, mend ? mend : "");
	d->bad |= state == BAD;
}

/* ---- FUSE ---- */

static void look_at_fuse(struct doctor *d)
{
	if (!access("/dev/fuse", R_OK | W_OK))
		say(d, "/dev/fuse", GOOD, NULL, "this user may open it");
	else if (errno == ENOENT)
		say(d, "/dev/fuse", BAD, "modprobe fuse (in a container: --device /dev/fuse)",
		    "is not there");
	else
		say(d, "/dev/fuse", BAD, "chmod 666 /dev/fuse", "%s", strerror(errno));
}

static bool find_in_path(const char *program, char *found, size_t size)
{
	const char *path = getenv("PATH");

	for (; path && *path; path += strcspn(path, ":"), path += *path == ':') {
		snprintf(found, size, "%.*s/%s", (int)strcspn(path, ":"), path, program);
		if (!access(found, X_OK))
			return true;
	}
	return false;
}

static void look_at_fusermount(struct doctor *d)
{
	char path[PATH_MAX];
	struct stat st;

	if (!find_in_path("fusermount3", path, sizeof(path)))
		say(d, "fusermount3", geteuid() ? BAD : SLOW, "apt-get install fuse3",
		    "not in PATH%s", geteuid() ? "" : "; root mounts without it");
	else if (geteuid() && (stat(path, &st) || !(st.st_mode & S_ISUID)))
		say(d, "fusermount3", BAD, "chmod u+s /usr/bin/fusermount3", "%s is not setuid",
		    path);
	else
		say(d, "fusermount3", GOOD, NULL, "%s", path);
}

static void look_at_fuse_conf(struct doctor *d)
{
	FILE *file = fopen("/etc/fuse.conf", "re");
	bool set = false;
	char line[256];

	while (file && !set && fgets(line, sizeof(line), file))
		set = !strncmp(line + strspn(line, " \t"), "user_allow_other", 16);
	if (file)
		fclose(file);
	if (set || !geteuid())
		say(d, "user_allow_other", GOOD, NULL, "%s",
		    set ? "is in /etc/fuse.conf" : "root needs none");
	else
		say(d, "user_allow_other", SLOW, "echo user_allow_other >>/etc/fuse.conf",
		    "not in /etc/fuse.conf: -o allow_other is refused");
}

/* Looks for mounts whose fragfs was killed. */
static void look_at_mounts(struct doctor *d)
{
	struct mount_entry *entries = NULL;
	int n = mounts_read_own(true, &entries), dead = 0;
	char mend[PATH_MAX + 32];

	for (int i = 0; i < n; i++) {
		if (!mount_is_dead(entries[i].mountpoint))
			continue;
		snprintf(mend, sizeof(mend), "fusermount3 -u %s", entries[i].mountpoint);
		say(d, "mounts", BAD, mend, "%s: its fragfs is gone", entries[i].mountpoint);
		dead++;
	}
	if (!dead)
		say(d, "mounts", GOOD, NULL, "%d of fragfs", n < 0 ? 0 : n);
	if (entries)
		mounts_free(entries, n);
}

/* ---- limits and the kernel ---- */

static void look_at_limit(struct doctor *d, const char *what, int resource, uint64_t enough,
			  const char *mend)
{
	struct rlimit limit;

	if (getrlimit((__rlimit_resource_t)resource, &limit))
		return;
	if (limit.rlim_cur == RLIM_INFINITY)
		say(d, what, GOOD, NULL, "unlimited");
	else
		say(d, what, limit.rlim_cur >= enough ? GOOD : SLOW,
		    limit.rlim_cur >= enough ? NULL : mend, "%" PRIu64 ", at most %" PRIu64,
		    (uint64_t)limit.rlim_cur, (uint64_t)limit.rlim_max);
}

static void look_at_io_uring(struct doctor *d)
{
	struct io_uring ring;
	char disabled[16];
	int e = io_uring_queue_init(2, &ring, 0);

	if (!e) {
		io_uring_queue_exit(&ring);
		say(d, "io_uring", GOOD, NULL, "works");
		return;
	}
	settings_get("/proc/sys/kernel/io_uring_disabled", disabled, sizeof(disabled));
	if (!strcmp(disabled, "0") || !strcmp(disabled, "-"))
		say(d, "io_uring", SLOW,
		    e == -ENOSYS ? "a kernel with io_uring"
				 : "a seccomp profile that allows io_uring",
		    "%s; threads read and write instead", strerror(-e));
	else
		say(d, "io_uring", SLOW, "sysctl kernel.io_uring_disabled=0",
		    "kernel.io_uring_disabled is %s; threads read and write instead", disabled);
}

static void look_at_huge_pages(struct doctor *d, const struct settings *m)
{
	bool never = !strcmp(m->huge_pages, "never") || !strcmp(m->huge_pages, "-");

	say(d, "huge pages", never ? SLOW : GOOD,
	    never ? "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled" : NULL, "%s",
	    m->huge_pages);
	never = !strcmp(m->shared_huge_pages, "never") || !strcmp(m->shared_huge_pages, "-");
	say(d, "shared huge pages", never ? SLOW : GOOD,
	    never ? "echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled" : NULL,
	    "%s", m->shared_huge_pages);
}

static void look_at_ptrace(struct doctor *d, const struct settings *m)
{
	bool off = !strcmp(m->yama, "-") || !strcmp(m->yama, "0") || !geteuid();

	say(d, "ptrace_scope", off ? GOOD : SLOW,
	    off ? NULL : "FRAG_PTRACER=any for the job, or sysctl kernel.yama.ptrace_scope=0",
	    "%s%s", m->yama,
	    off ? "" : ": ranks' memory may not be read, their bytes come as messages");
}

/* ---- libraries ---- */

static void look_at_library(struct doctor *d, const char *what, const char *library,
			    bool wanted, const char *mend, const char *without)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);

	if (handle)
		say(d, what, GOOD, NULL, "%s", library);
	else
		say(d, what, wanted ? SLOW : GOOD, wanted ? mend : NULL, "no %s%s%s", library,
		    *without ? ": " : "", without);
}

static void look_at_devices(struct doctor *d)
{
	FILE *file = fopen("/proc/driver/nvidia/version", "re");
	char line[256] = "";

	if (file && fgets(line, sizeof(line), file))
		line[strcspn(line, "\n")] = '\0';
	if (file)
		fclose(file);
	say(d, "NVIDIA driver", GOOD, NULL, "%s", *line ? line : "none, nor devices of its");
	look_at_library(d, "NCCL", "libnccl.so.2", *line, "apt-get install libnccl2",
			*line ? "devices' bytes come by the host" : "nor devices");
	look_at_library(d, "UCX", "libucp.so.0", false, NULL, "FRAG_FABRIC=ucx needs it");
}

/* ---- folders and keys ---- */

static void look_at_swap(struct doctor *d)
{
	const char *folder = getenv("FRAG_SWAP_DIR");
	struct statfs fs;
	char size[16];

	if (!folder || !*folder) {
		say(d, "swap directory", GOOD, NULL, "FRAG_SWAP_DIR is not set");
		return;
	}
	if (statfs(folder, &fs)) {
		say(d, "swap directory", BAD, "mkdir -p \"$FRAG_SWAP_DIR\"", "%s: %s", folder,
		    strerror(errno));
		return;
	}
	listing_size((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize, size);
	if (access(folder, W_OK))
		say(d, "swap directory", BAD, "chown \"$USER\" \"$FRAG_SWAP_DIR\"", "%s: %s",
		    folder, strerror(errno));
	else if (fs.f_type == TMPFS_MAGIC)
		say(d, "swap directory", SLOW, "FRAG_SWAP_DIR=a folder on a local NVMe",
		    "%s is memory (tmpfs), %s free", folder, size);
	else if (fs.f_type == NFS_SUPER_MAGIC)
		say(d, "swap directory", SLOW, "FRAG_SWAP_DIR=a folder on a local NVMe",
		    "%s is on the net (NFS), %s free", folder, size);
	else
		say(d, "swap directory", GOOD, NULL, "%s, %s free", folder, size);
}

static void look_at_key(struct doctor *d, const char *path)
{
	char mend[PATH_MAX + 16];
	struct stat st;

	snprintf(mend, sizeof(mend), "chmod 600 %s", path);
	if (stat(path, &st))
		say(d, "key file", BAD, "fragctl key FILE", "%s: %s", path, strerror(errno));
	else if (st.st_mode & 077)
		say(d, "key file", BAD, mend, "%s: mode %03o, others may read it", path,
		    st.st_mode & 0777);
	else
		say(d, "key file", GOOD, NULL, "%s", path);
}

static void look_at_job(void *arg, const struct jobfile *j)
{
	if (j->key_file[0])
		look_at_key(arg, j->key_file);
}

int doctor_run(const struct call *call)
{
	const char *key = getenv("FRAG_KEY_FILE");
	struct settings machine;
	struct listing t;
	struct doctor d = { .t = &t };
	int rc = listing_init(&t, call, doctor_columns);

	if (rc)
		return rc;
	settings_read(&machine);
	look_at_fuse(&d);
	look_at_fusermount(&d);
	look_at_fuse_conf(&d);
	look_at_mounts(&d);
	look_at_limit(&d, "locked memory", RLIMIT_MEMLOCK, LOCKED_ENOUGH,
		      "ulimit -l unlimited");
	look_at_limit(&d, "open files", RLIMIT_NOFILE, FILES_ENOUGH, "ulimit -n 65536");
	look_at_io_uring(&d);
	look_at_huge_pages(&d, &machine);
	look_at_ptrace(&d, &machine);
	look_at_devices(&d);
	look_at_swap(&d);
	if (key && *key)
		look_at_key(&d, key);
	jobfile_list(look_at_job, &d);
	rc = listing_print(&t, "checks");
	listing_fini(&t);
	return rc ? rc : d.bad ? FRAGCTL_FOUND : 0;
}
