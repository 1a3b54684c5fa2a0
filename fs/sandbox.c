/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/sandbox.h"

#include "engine/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sanitizers look into their own process by ptrace(2) and /proc. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* ---- landlock: names that Debian 12's headers do not have yet, by landlock's version ---- */

#define FS_TRUNCATE (1ULL << 14)  /* since version 3 */
#define FS_IOCTL_DEV (1ULL << 15) /* since version 5 */
#define FS_FIRST ((1ULL << 13) - 1)
#define FS_REFER (1ULL << 13) /* since version 2 */
#define NET_ALL 3ULL          /* since version 4: bind and connect of TCP */
#define SCOPE_ALL 3ULL        /* since version 6: abstract sockets, signals */

#define FS_OF_FILES                                                                            \
	(LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE |          \
	 FS_IOCTL_DEV)
#define FS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FS_EDIT                                                                                \
	(FS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |               \
	 LANDLOCK_ACCESS_FS_REMOVE_FILE | FS_TRUNCATE)
#define FS_DEVICE (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_IOCTL_DEV)

struct ruleset { /* struct landlock_ruleset_attr of version 6 */
	uint64_t fs, net, scoped;
};

static int allow(int ruleset, uint64_t handled, const char *path, uint64_t access)
{
	CLEANUP(close) int fd = open(path, O_PATH | O_CLOEXEC);
	struct landlock_path_beneath_attr rule = { .parent_fd = fd };
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	rule.allowed_access = access & handled & (S_ISDIR(st.st_mode) ? ~0ULL : FS_OF_FILES);
	if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0))
		return -errno;
	return 0;
}

/* Allows the files that the C library and libfuse open themselves. */
static void allow_machine(int ruleset, uint64_t handled)
{
	static const struct {
		const char *path;
		uint64_t access;
	} rows[] = {
		{ "/dev/fuse", FS_DEVICE },
		{ "/dev/null", FS_DEVICE },
		{ "/proc/locks", FS_READ },
		{ "/sys/devices/system/cpu", FS_READ },
		{ SANITIZED ? "/proc" : "/proc/self/status", FS_READ },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int rc = allow(ruleset, handled, rows[i].path, rows[i].access);

		if (rc)
			log_debug("sandbox: %s: %s", rows[i].path, strerror(-rc));
	}
}

static int restrict_files(const struct sandbox_folder *folders, size_t count)
{
	int version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0,
				   LANDLOCK_CREATE_RULESET_VERSION);
	const struct ruleset all = {
		.fs = FS_FIRST | (version >= 2 ? FS_REFER : 0) |
		      (version >= 3 ? FS_TRUNCATE : 0) | (version >= 5 ? FS_IOCTL_DEV : 0),
		.net = version >= 4 ? NET_ALL : 0,
		.scoped = version >= 6 ? SCOPE_ALL : 0,
	};
	size_t size = version >= 6   ? sizeof(all)
		      : version >= 4 ? offsetof(struct ruleset, scoped)
				     : offsetof(struct ruleset, net);
	CLEANUP(close) int ruleset = -1;
	int rc = 0;

	if (version < 1) {
		log_info("sandbox: no landlock here: %s", strerror(errno));
		return 0;
	}
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &all, size, 0);
	if (ruleset < 0)
		return -errno;
	allow_machine(ruleset, all.fs);
	for (size_t i = 0; i < count && !rc; i++)
		if (folders[i].path)
			rc = allow(ruleset, all.fs, folders[i].path,
				   folders[i].writable ? FS_EDIT : FS_READ);
	if (!rc && syscall(SYS_landlock_restrict_self, ruleset, 0))
		rc = -errno;
	if (!rc)
		log_info("sandbox: landlock version %d", version);
	return rc;
}

/* ---- seccomp ---- */

#if defined(__x86_64__)
#define AUDIT_ARCH_HERE AUDIT_ARCH_X86_64
#define NUMBERS_END 0x40000000 /* numbers of x32 begin here */
#elif defined(__aarch64__)
#define AUDIT_ARCH_HERE AUDIT_ARCH_AARCH64
#define NUMBERS_END 0x7fffffff
#else
#define AUDIT_ARCH_HERE 0
#define NUMBERS_END 0
#endif

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat 463
#define SYS_removexattrat 466
#endif

/* System calls that a server of files never makes.  Of calls on files only those are here that
 * landlock does not limit; calls for memory and threads, which the libraries need, are not.
 */
static const int refused[] = {
#ifdef SYS_chmod /* not on new architectures */
	SYS_chmod,
	SYS_chown,
	SYS_lchown,
#endif
	SYS_fchmod,
	SYS_fchmodat,
	SYS_fchmodat2,
	SYS_fchown,
	SYS_fchownat,
	SYS_setxattr,
	SYS_lsetxattr,
	SYS_fsetxattr,
	SYS_setxattrat,
	SYS_removexattr,
	SYS_lremovexattr,
	SYS_fremovexattr,
	SYS_removexattrat,
	SYS_execve,
	SYS_execveat,
	SYS_process_vm_readv,
	SYS_process_vm_writev,
	SYS_pidfd_getfd,
	SYS_kcmp,
	SYS_socket,
	SYS_socketpair,
	SYS_connect,
	SYS_bind,
	SYS_listen,
	SYS_accept,
	SYS_accept4,
	SYS_mount,
	SYS_umount2,
	SYS_move_mount,
	SYS_open_tree,
	SYS_fsopen,
	SYS_fsmount,
	SYS_fspick,
	SYS_fsconfig,
	SYS_mount_setattr,
	SYS_pivot_root,
	SYS_chroot,
	SYS_unshare,
	SYS_setns,
	SYS_bpf,
	SYS_perf_event_open,
	SYS_userfaultfd,
	SYS_keyctl,
	SYS_add_key,
	SYS_request_key,
	SYS_init_module,
	SYS_finit_module,
	SYS_delete_module,
	SYS_kexec_load,
	SYS_reboot,
	SYS_swapon,
	SYS_swapoff,
	SYS_sethostname,
	SYS_setdomainname,
	SYS_syslog,
	SYS_acct,
	SYS_quotactl,
	SYS_settimeofday,
	SYS_clock_settime,
	SYS_adjtimex,
	SYS_clock_adjtime,
	SYS_open_by_handle_at,
	SYS_name_to_handle_at,
	SYS_shmget,
	SYS_msgget,
	SYS_fanotify_init,
	SYS_personality,
#if !SANITIZED
	SYS_ptrace,
#endif
};

enum { REFUSED = ARRAY_SIZE(refused), HEAD = 5, LENGTH = HEAD + 2 * REFUSED + 1 };

static void write_filter(struct sock_filter f[LENGTH])
{
	const struct sock_filter head[HEAD] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_HERE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		/* Jumps to the first `refuse`: behind this, and behind one comparison. */
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, NUMBERS_END, 1, 0),
	};
	const struct sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);

	memcpy(f, head, sizeof(head));
	for (size_t i = 0; i < REFUSED; i++) {
		f[HEAD + 2 * i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							       (uint32_t)refused[i], 0, 1);
		f[HEAD + 2 * i + 1] = refuse;
	}
	f[LENGTH - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
}

static void restrict_calls(void)
{
	struct sock_filter filter[LENGTH];
	struct sock_fprog program = { .len = LENGTH, .filter = filter };

	write_filter(filter);
	if (!AUDIT_ARCH_HERE)
		log_info("sandbox: no seccomp filter for this architecture");
	else if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		log_info("sandbox: no seccomp here: %s", strerror(errno));
	else
		log_info("sandbox: seccomp");
}

/* ---- capabilities ---- */

/* Keeps only root's capabilities to read and write files of others and, if the process writes
 * files, to set their times: an edit that is undone gives them back.
 */
static void drop_capabilities(bool writes)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	const uint32_t keep = 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH |
			      (writes ? 1U << CAP_FOWNER : 0);

	if (syscall(SYS_capget, &head, data))
		return;
	data[0].effective &= keep;
	data[0].permitted &= keep;
	data[1].effective = data[1].permitted = 0;
	data[0].inheritable = data[1].inheritable = 0;
	if (syscall(SYS_capset, &head, data))
		log_info("sandbox: capabilities stay: %s", strerror(errno));
}

int sandbox_enter(const struct sandbox_folder *folders, size_t count)
{
	bool writes = false;
	int rc;

	tzset(); /* reads its file now, while the process can open files */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	rc = restrict_files(folders, count);
	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++)
		writes |= folders[i].path && folders[i].writable;
	drop_capabilities(writes);
	restrict_calls();
	return 0;
}
