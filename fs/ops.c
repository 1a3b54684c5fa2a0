/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/ops.h"

#include "fs/pages.h"
#include "fs/state.h"
#include "fs/text.h"
#include "fs/write-buffer.h"
#include "fs/freeze.h"
#include "fs/xattr.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/statvfs.h>

static struct fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static void call(fuse_req_t req, struct deferred_call c)
{
	deferred_run(&fs_of(req)->deferred, req, &c);
}

/* Chooses the settings by measurement.  With FUSE_CAP_ATOMIC_O_TRUNC the kernel itself would
 * take open(2) with O_TRUNC for the file's end and drop its pages: a reader by sendfile(2) or a
 * mapping would meanwhile find the file cut.
 */
static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs *fs = userdata;

	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
				  FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE |
				  FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_READDIRPLUS_AUTO |
				  FUSE_CAP_ATOMIC_O_TRUNC);
	conn->want |= conn->capable &
		      (FUSE_CAP_READDIRPLUS | FUSE_CAP_EXPLICIT_INVAL_DATA |
		       FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS);
	/* libfuse refuses to start unless it gets the value of -o max_read here too */
	if (fs->max_read)
		conn->max_read = fs->max_read;
	fs->ready(fs->ready_arg);
}

/* ---- names and attributes ---- */

static int attr(struct fs *fs, struct node n, const struct engine_state *state, struct stat *st)
{
	int rc = tree_attr(&fs->tree, n, state, st);

	if (rc || (n.kind != NODE_TEXT && n.kind != NODE_HYPER))
		return rc;
	return state_text_attr(fs, n, st);
}

static int fill(struct fs *fs, const struct tree_entry *entry, struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){ .ino = tree_inode(entry->node),
					.attr_timeout = tree_timeout(&fs->tree, entry->node),
					.entry_timeout = tree_timeout(&fs->tree, entry->node) };
	return attr(fs, entry->node, entry->has_state ? &entry->state : NULL, &e->attr);
}

static int lookup(fuse_req_t req, const struct deferred_call *c)
{
	struct fs *fs = fs_of(req);
	struct fuse_entry_param e;
	struct tree_entry entry;
	struct node dir;
	int rc = tree_node(&fs->tree, c->ino, &dir);

	if (!rc)
		rc = tree_lookup(&fs->tree, dir, c->name, &entry);
	if (rc)
		return rc;
	pages_choose_inode(fs, &entry.node, fuse_req_ctx(req)->pid);
	rc = fill(fs, &entry, &e);
	/* Where the kernel does not get the entry, it does not forget it either. */
	if (rc || fuse_reply_entry(req, &e) == -ENOENT)
		tree_forget(&fs->tree, tree_inode(entry.node), 1);
	return rc;
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	tree_forget(&fs_of(req)->tree, ino, n);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		tree_forget(&fs_of(req)->tree, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	call(req, (struct deferred_call){ .run = lookup, .ino = parent, .name = name });
}

static int getattr(fuse_req_t req, const struct deferred_call *c)
{
	struct stat st;
	struct node n;
	int rc = tree_node(&fs_of(req)->tree, c->ino, &n);

	if (!rc)
		rc = attr(fs_of(req), n, NULL, &st);
	if (!rc)
		fuse_reply_attr(req, &st, tree_timeout(&fs_of(req)->tree, n));
	return rc;
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	call(req, (struct deferred_call){ .run = getattr, .ino = ino });
}

/* Checks a truncation without an open file.  No write can follow it, so `truncate(path, 0)`
 * changes nothing, as `: > path` does.
 */
static int truncate_path(struct fs *fs, struct node n, uint64_t size)
{
	uint64_t bytes;
	int rc = state_may_write(fs, n, &bytes);

	if (rc)
		return rc;
	return !size || size == bytes ? 0 : -EINVAL;
}

/* Sets the size of a file.  For open(2) with O_TRUNC the kernel sends OPEN without the flag and
 * then, before open(2) returns, this request without the open file, as for truncate(2).
 */
static int set_size(fuse_req_t req, struct node n, const struct deferred_call *c)
{
	uint64_t size = (uint64_t)c->attr->st_size;
	int rc;

	if (c->file && handle_of(c->file)->write_buffer)
		return write_buffer_truncate(handle_of(c->file), size);
	rc = truncate_path(fs_of(req), n, size);
	if (!rc && !size)
		state_truncated(fs_of(req), n, fuse_req_ctx(req)->pid);
	return rc;
}

/* Returns true if an attribute would change.  `cp -p` sets attributes that are there already,
 * and times, which are ignored: states have the times of their changes.
 */
static bool changes_owner_or_mode(const struct stat *to, int to_set, const struct stat *now)
{
	return ((to_set & FUSE_SET_ATTR_MODE) &&
		(to->st_mode & 07777) != (now->st_mode & 07777)) ||
	       ((to_set & FUSE_SET_ATTR_UID) && to->st_uid != now->st_uid) ||
	       ((to_set & FUSE_SET_ATTR_GID) && to->st_gid != now->st_gid);
}

/* Sets the size alone: all other attributes stay as they are. */
static int setattr(fuse_req_t req, const struct deferred_call *c)
{
	struct fs *fs = fs_of(req);
	struct stat now;
	struct node n;
	int rc = tree_node(&fs->tree, c->ino, &n);

	if (!rc)
		rc = attr(fs, n, NULL, &now);
	if (!rc && changes_owner_or_mode(c->attr, c->to_set, &now))
		rc = -EPERM;
	if (!rc && (c->to_set & FUSE_SET_ATTR_SIZE))
		rc = set_size(req, n, c);
	if (!rc)
		fuse_reply_attr(req, &now, tree_timeout(&fs_of(req)->tree, n));
	return rc;
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set,
		       struct fuse_file_info *fi)
{
	call(req,
	     (struct deferred_call){
		     .run = setattr, .ino = ino, .attr = st, .to_set = to_set, .file = fi });
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char to[NAMES_FILE_MAX + 32];
	struct node n;
	int rc = tree_node(&fs_of(req)->tree, ino, &n);

	if (!rc && n.kind != NODE_GROUP_LINK)
		rc = -EINVAL;
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	tree_link(&fs_of(req)->tree, n, to, sizeof(to));
	fuse_reply_readlink(req, to);
}

/* ---- directories ---- */

/* Returns true if the directory's entries are the same as long as the tree is mounted. */
static bool is_constant(const struct tree *t, struct node n)
{
	return tree_is_still(t, n) || n.kind == NODE_PARAMS || n.kind == NODE_GROUP_PARAMS ||
	       n.kind == NODE_RANKS || n.kind == NODE_GROUPS || n.kind == NODE_CONTROL ||
	       n.kind == NODE_ROOT;
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node n;
	int rc = tree_node(&fs_of(req)->tree, ino, &n);

	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	fi->cache_readdir = is_constant(&fs_of(req)->tree, n);
	fi->keep_cache = fi->cache_readdir;
	fuse_reply_open(req, fi);
}

struct entries_listing {
	fuse_req_t req;
	struct fs *fs;
	char *buf;
	size_t size, used;
};

/* Adds an entry to the listing.  false: it does not fit. */
static bool list_plain(struct entries_listing *l, const struct tree_entry *entry, uint64_t next)
{
	struct stat st = { .st_ino = tree_inode(entry->node), .st_mode = S_IFREG };
	size_t n;

	if (tree_node_is_dir(entry->node))
		st.st_mode = S_IFDIR;
	else if (entry->node.kind == NODE_GROUP_LINK)
		st.st_mode = S_IFLNK;
	n = fuse_add_direntry(l->req, l->buf + l->used, l->size - l->used, entry->name, &st,
			      (off_t)next);
	if (n > l->size - l->used)
		return false;
	l->used += n;
	return true;
}

/* Adds an entry with its attributes.  Inode 0 in e leaves the attributes to a LOOKUP: for "."
 * and "..", and for texts that take time to make.
 */
static bool list_plus(struct entries_listing *l, const struct tree_entry *entry, uint64_t next)
{
	struct fuse_entry_param e;
	size_t n;

	if (entry->name[0] == '.' && (!entry->name[1] || !strcmp(entry->name, "..")))
		e = (struct fuse_entry_param){ .attr.st_mode = S_IFDIR };
	else if (text_is_costly(entry->node))
		e = (struct fuse_entry_param){ .attr.st_mode = S_IFREG };
	else if (fill(l->fs, entry, &e))
		return true; /* the state was dropped meanwhile */
	e.attr.st_ino = tree_inode(entry->node);
	n = fuse_add_direntry_plus(l->req, l->buf + l->used, l->size - l->used, entry->name, &e,
				   (off_t)next);
	if (n > l->size - l->used)
		return false;
	l->used += n;
	return true;
}

/* Lists a directory.  An error is returned only where no entry comes before it. */
static int list(fuse_req_t req, const struct deferred_call *c,
		bool (*put)(struct entries_listing *l, const struct tree_entry *entry,
			    uint64_t next))
{
	struct entries_listing l = { .req = req, .fs = fs_of(req), .size = c->size };
	uint64_t offset = (uint64_t)c->offset;
	struct tree_entry entry;
	struct tree_dir dir;
	struct node n;
	int rc = tree_node(&l.fs->tree, c->ino, &n);

	if (rc)
		return rc;
	l.buf = malloc(l.size);
	if (!l.buf)
		return -ENOMEM;
	tree_dir_init(&dir, &l.fs->tree, n);
	while (tree_dir_get(&dir, offset, &entry, &offset)) {
		if (!put(&l, &entry, offset))
			break;
	}
	rc = l.used ? 0 : dir.error;
	if (!rc)
		fuse_reply_buf(req, l.buf, l.used);
	free(l.buf);
	tree_dir_fini(&dir);
	return rc;
}

static int readdir(fuse_req_t req, const struct deferred_call *c)
{
	return list(req, c, list_plain);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi)
{
	call(req, (struct deferred_call){
			  .run = readdir, .ino = ino, .size = size, .offset = offset });
}

static int readdirplus(fuse_req_t req, const struct deferred_call *c)
{
	return list(req, c, list_plus);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			   struct fuse_file_info *fi)
{
	call(req, (struct deferred_call){
			  .run = readdirplus, .ino = ino, .size = size, .offset = offset });
}

/* ---- files ---- */

static int open_file(fuse_req_t req, const struct deferred_call *c)
{
	struct fuse_file_info *fi = c->file;
	struct fs *fs = fs_of(req);
	struct handle *h = NULL;
	struct node n;
	int rc = tree_node(&fs->tree, c->ino, &n);

	if (!rc)
		rc = state_open(fs, n, fi->flags, fuse_req_ctx(req)->pid, &h);
	if (rc)
		return rc;
	fi->fh = (uintptr_t)h;
	/* A file that never changes goes through the page cache, and can be mapped. */
	h->still = !fs->writable && h->file && h->node.kind != NODE_HYPER &&
		   h->node.kind != NODE_STAT && h->cells.form != CELLS_ELEMENT &&
		   tree_is_still(&fs->tree, n);
	fi->keep_cache = h->still;
	/* Readers of safetensors map the file shared, which the kernel refuses with direct_io.
	 */
	fi->direct_io = !h->still && !(h->exported && h->file);
	fi->noflush = !h->write_buffer;
	fi->nonseekable = h->events != NULL;
	/* The caller has gone: the kernel sends no RELEASE. */
	if (fuse_reply_open(req, fi) == -ENOENT)
		state_close(h);
	return 0;
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	call(req, (struct deferred_call){ .run = open_file, .ino = ino, .file = fi });
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	state_close(handle_of(fi));
	fuse_reply_err(req, 0);
}

static int read_file(fuse_req_t req, const struct deferred_call *c)
{
	struct handle *h = handle_of(c->file);
	int rc = 0;

	/* A READ that fills pages of the kernel has no lock owner; the READ of a read(2) has
	 * the caller's.
	 */
	if (h->file && h->node.kind != NODE_STAT && !h->still && !c->file->lock_owner)
		rc = pages_use(h);
	if (rc)
		return rc;
	return state_read(h, req, c->size, (uint64_t)c->offset, c->file->flags);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	call(req, (struct deferred_call){
			  .run = read_file, .size = size, .offset = offset, .file = fi });
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t offset,
		     struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);

	if (tree_node_is_command(h->node)) {
		freeze_write(h, req, buf, size);
	} else if (h->write_buffer) {
		atomic_store(&h->writer, fi->lock_owner);
		write_buffer_write(h, req, buf, size, (uint64_t)offset);
	} else {
		fuse_reply_err(req, EBADF);
	}
}

/* A forked child that closes a file commits nothing of what its parent has written so far: that
 * would be a part, and would wait for a boundary, which a trainer that waits for the child
 * never passes.  A file that only ftruncate(2) has changed has no writer.
 */
static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);
	uint64_t writer = atomic_load(&h->writer);

	if (h->write_buffer && (!writer || fi->lock_owner == writer))
		write_buffer_flush(h, req, false);
	else
		fuse_reply_err(req, 0);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	if (handle_of(fi)->write_buffer)
		write_buffer_flush(handle_of(fi), req, true);
	else
		fuse_reply_err(req, 0);
}

static void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
		    struct fuse_pollhandle *ph)
{
	struct handle *h = handle_of(fi);

	if (engine_is_live(h->fs->engine) && poll_can(h->node)) {
		fuse_reply_poll(req, poll_ask(&h->fs->polls, &h->poll, ph));
		return;
	}
	if (ph)
		fuse_pollhandle_destroy(ph);
	fuse_reply_poll(req, POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM);
}

/* ---- the rest ---- */

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *fs = fs_of(req);
	struct statvfs s = { .f_bsize = TREE_BLOCK,
			     .f_frsize = 4096,
			     .f_namemax = NAMES_FILE_MAX };
	struct engine_rank r;
	struct engine_job job;

	engine_job(fs->engine, &job);
	s.f_blocks = u64_div_ceil(job.bytes, s.f_frsize);
	for (uint32_t i = 0; i < fs->tree.nranks; i++) {
		if (engine_rank(fs->engine, i, &r))
			s.f_blocks += u64_div_ceil(r.bytes_host + r.bytes_swap + r.bytes_device,
						   s.f_frsize);
	}
	s.f_files = (fsfilcnt_t)fs->tree.ntensors + fs->tree.nranks + fs->tree.ngroups;
	fuse_reply_statfs(req, &s);
}

static int reply_value(fuse_req_t req, const char *value, int64_t length, size_t size)
{
	if (length < 0)
		return (int)length;
	if (size && (uint64_t)length > size)
		return -ERANGE;
	if (size)
		fuse_reply_buf(req, value, (size_t)length);
	else
		fuse_reply_xattr(req, (size_t)length);
	return 0;
}

static int getxattr(fuse_req_t req, const struct deferred_call *c)
{
	struct tree *t = &fs_of(req)->tree;
	CLEANUP(free) char *value = NULL;
	struct node n;
	int64_t length = tree_node(t, c->ino, &n);

	if (!length)
		length = xattr_get(t, n, c->name, &value);
	return reply_value(req, value, length, c->size);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	call(req,
	     (struct deferred_call){ .run = getxattr, .ino = ino, .name = name, .size = size });
}

static int listxattr(fuse_req_t req, const struct deferred_call *c)
{
	struct tree *t = &fs_of(req)->tree;
	CLEANUP(free) char *names = NULL;
	struct node n;
	int64_t length = tree_node(t, c->ino, &n);

	if (!length)
		length = xattr_list(t, n, &names);
	return reply_value(req, names, length, c->size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	call(req, (struct deferred_call){ .run = listxattr, .ino = ino, .size = size });
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			size_t size, int flags)
{
	fuse_reply_err(req, strncmp(name, "user.", 5) ? EOPNOTSUPP : EPERM);
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	fuse_reply_err(req, EPERM);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	fuse_reply_err(req, EPERM);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		     dev_t dev)
{
	fuse_reply_err(req, EPERM);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	fuse_reply_err(req, EPERM);
}

static void op_remove(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, EPERM);
}

static void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, EPERM);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, EPERM);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
		      fuse_ino_t new_parent, const char *new_name, unsigned flags)
{
	fuse_reply_err(req, EPERM);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
			 struct fuse_file_info *fi)
{
	fuse_reply_err(req, EOPNOTSUPP);
}

const struct fuse_lowlevel_ops ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.open = op_open,
	.release = op_release,
	.poll = op_poll,
	.read = op_read,
	.write = op_write,
	.flush = op_flush,
	.fsync = op_fsync,
	.statfs = op_statfs,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.setxattr = op_setxattr,
	.removexattr = op_removexattr,
	.create = op_create,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_remove,
	.rmdir = op_remove,
	.symlink = op_symlink,
	.link = op_link,
	.rename = op_rename,
	.fallocate = op_fallocate,
};
