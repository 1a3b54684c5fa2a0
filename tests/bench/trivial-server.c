/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* trivial-server MOUNTPOINT BYTES [FILES [keep]]: the server that fragfs is compared with.  One
 * file, `state`, or equal ones, `0`, `1` and so on, in memory of its own in huge pages,
 * answered straight from there; session, loop and open flags as fragfs has them for a job, or
 * with `keep` for a checkpoint, whose pages the kernel keeps.  Returns when it is mounted; ends
 * when it is unmounted.
 */

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "engine/base/base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { INO_ROOT = 1, INO_STATE = 2, BLOCK = 1 << 20, HUGE = 2 << 20 };
static const double forever = 1e9;

static char *memory;
static uint64_t bytes, files = 1;
static bool keep;

static bool attr(fuse_ino_t ino, struct stat *st)
{
	*st = (struct stat){ .st_ino = ino, .st_nlink = 1, .st_blksize = BLOCK };
	if (ino == INO_ROOT) {
		st->st_mode = S_IFDIR | 0755;
		return true;
	}
	st->st_mode = S_IFREG | 0644;
	st->st_size = (off_t)(bytes / files);
	st->st_blocks = (blkcnt_t)(bytes / files / 512);
	return ino >= INO_STATE && ino < INO_STATE + files;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
				  FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE |
				  FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_READDIRPLUS_AUTO);
	conn->want |= conn->capable & (FUSE_CAP_READDIRPLUS | FUSE_CAP_EXPLICIT_INVAL_DATA |
				       FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO |
				       FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ATOMIC_O_TRUNC);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .attr_timeout = forever, .entry_timeout = forever };
	char none[] = "", *end = none;

	e.ino = INO_STATE + (files > 1 ? strtoull(name, &end, 10) : 0);
	if (parent != INO_ROOT || *end || (files == 1 && strcmp(name, "state")) ||
	    !attr(e.ino, &e.attr)) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	if (attr(ino, &st))
		fuse_reply_attr(req, &st, forever);
	else
		fuse_reply_err(req, ENOENT);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fi->direct_io = !keep;
	fi->keep_cache = keep;
	fi->noflush = 1;
	fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	uint64_t at = u64_min((uint64_t)offset, bytes / files);

	fuse_reply_buf(req, memory + (ino - INO_STATE) * (bytes / files) + at,
		       u64_min(size, bytes / files - at));
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t offset,
		     struct fuse_file_info *fi)
{
	uint64_t at = u64_min((uint64_t)offset, bytes);

	if (at == bytes) {
		fuse_reply_err(req, EFBIG);
		return;
	}
	size = u64_min(size, bytes - at);
	memcpy(memory + at, buf, size);
	fuse_reply_write(req, size);
}

static const struct fuse_lowlevel_ops ops = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.open = op_open,
	.read = op_read,
	.write = op_write,
};

static bool make_memory(void)
{
	memory = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	if (memory == MAP_FAILED)
		return false;
	memory += -(uintptr_t)memory % HUGE;
	madvise(memory, bytes, MADV_HUGEPAGE);
	memset(memory, 1, bytes);
	return true;
}

static int serve(struct fuse_session *session)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int rc;

	fuse_loop_cfg_set_clone_fd(config, 1);
	fuse_loop_cfg_set_max_threads(config, cpus > 2 ? (unsigned)cpus : 2);
	rc = fuse_session_loop_mt(session, config);
	fuse_loop_cfg_destroy(config);
	return rc;
}

int main(int argc, char **argv)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct fuse_session *session;
	int rc;

	if (argc < 3 || argc > 5 || !(bytes = strtoull(argv[2], NULL, 10)) ||
	    (argc > 3 && !(files = strtoull(argv[3], NULL, 10)))) {
		fprintf(stderr, "usage: %s MOUNTPOINT BYTES [FILES [keep]]\n", argv[0]);
		return 2;
	}
	keep = argc > 4;
	fuse_opt_add_arg(&args, argv[0]);
	fuse_opt_add_arg(&args, "-ofsname=trivial,subtype=trivial");
	session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!session || fuse_set_signal_handlers(session) ||
	    fuse_session_mount(session, argv[1]))
		return 1;
	rc = fuse_daemonize(0) || !make_memory() || serve(session);
	fuse_session_unmount(session);
	fuse_remove_signal_handlers(session);
	fuse_session_destroy(session);
	fuse_opt_free_args(&args);
	return rc != 0;
}
