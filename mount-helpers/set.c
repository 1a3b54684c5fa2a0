/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/state-slice.h"
#include "mount-helpers/target.h"

#include "engine/base/base.h"
#include "engine/base/one-line.h"
#include "engine/base/dtype.h"
#include "engine/base/fd.h"
#include "engine/catalog/operation.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { AT_ONCE = 1 << 16, FREEZE_SECONDS = 60 };

/* The new values of the elements. */
struct change {
	struct operation operation;
	int fd;      /* file that has the elements; -1: operation makes them */
	off_t begin; /* of the elements in the file */
};

/* ---- files ---- */

/* A .npy file of format 1.0, which numpy.save writes unless the header has 64 KiB or more. */
enum { PREAMBLE = 10, HEADER_MAX = 1 << 16 };

struct npy {
	off_t begin; /* of the elements in the file */
	char dtype[32], order[8], shape[512];
};

/* Copies the value of a member of the header, up to the end, without blanks. */
static void copy_member(const char *header, const char *name, char end, char *value,
			size_t size)
{
	const char *at = strstr(header, name);
	size_t n = 0;

	for (at = at ? at + strlen(name) : ""; *at && *at != end && n + 1 < size; at++)
		if (*at != ' ')
			value[n++] = *at;
	value[n] = '\0';
}

/* Returns false if the file is no .npy of that format. */
static bool npy_read(struct npy *npy, int fd)
{
	CLEANUP(free) char *header = calloc(1, HEADER_MAX);
	unsigned char head[PREAMBLE];
	size_t length;

	if (!header || fd_read_all(fd, head, sizeof(head), 0) || memcmp(head, "\x93NUMPY\1", 7))
		return false;
	length = head[8] | (size_t)head[9] << 8;
	if (fd_read_all(fd, header, length, PREAMBLE))
		return false;
	npy->begin = PREAMBLE + (off_t)length;
	copy_member(header, "'descr':", ',', npy->dtype, sizeof(npy->dtype));
	copy_member(header, "'fortran_order':", ',', npy->order, sizeof(npy->order));
	copy_member(header, "'shape':", ')', npy->shape, sizeof(npy->shape));
	return true;
}

/* Compares the header with that of the mount's .npy of the slice.  Elements are written as
 * bytes: another dtype would make other numbers of them, another order or shape other places.
 */
static int look_at_npy(struct change *c, const char *name, const struct state_slice *p,
		       const char *mountpoint)
{
	CLEANUP(close) int fd = state_slice_open_npy(p, mountpoint);
	struct npy of_file, of_slice;

	if (fd < 0)
		return call_fail("%s/%s%s.npy: %s", p->param->name, p->state, p->slice_text,
				 strerror(-fd));
	if (!npy_read(&of_file, c->fd) || !npy_read(&of_slice, fd))
		return call_fail("%s: no header of numpy's that is known", name);
	if (strcmp(of_file.order, of_slice.order) != 0)
		return call_fail("%s: not in C order", name);
	if (strcmp(of_file.dtype, of_slice.dtype) || strcmp(of_file.shape, of_slice.shape))
		return call_fail("%s: has %s of shape %s), and the slice %s of %s)", name,
				 of_file.dtype, of_file.shape, of_slice.dtype, of_slice.shape);
	c->begin = of_file.begin;
	return 0;
}

/* Finds the elements of a file: all its bytes or, of a .npy, the bytes behind the header. */
static int look_at_file(struct change *c, const char *name, const struct state_slice *p,
			const char *mountpoint)
{
	uint64_t want = p->slice.numel * p->file.element;
	char magic[6] = "";
	struct stat st;
	int rc = 0;

	/* O_NONBLOCK: open(2) must not wait for the other end of a FIFO */
	c->fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (c->fd >= 0 && !fstat(c->fd, &st) && !S_ISREG(st.st_mode))
		return call_fail("%s: is no regular file", name);
	/* but reads of a file in a mount of fragfs may wait */
	if (c->fd < 0 || fcntl(c->fd, F_SETFL, 0) || fstat(c->fd, &st) ||
	    pread(c->fd, magic, sizeof(magic), 0) < 0)
		return call_fail("%s: %s", name, strerror(errno));
	if (!memcmp(magic, "\x93NUMPY", sizeof(magic)))
		rc = look_at_npy(c, name, p, mountpoint);
	if (rc)
		return rc;
	if ((uint64_t)(st.st_size - c->begin) != want)
		return call_fail("%s: has %" PRIu64 " bytes, and the slice %" PRIu64, name,
				 (uint64_t)(st.st_size - c->begin), want);
	return 0;
}

/* ---- the command line ---- */

/* Returns the text behind "=", or all of it if there is no "=". */
static const char *skip_sign(const char *text)
{
	return *text == '=' ? text + 1 + strspn(text + 1, " ") : text;
}

static bool is_number(const char *text)
{
	char *end;

	strtod(text, &end);
	return end != text && !*end;
}

/* Parses the expression.  The word behind "=" names a file unless it is a number of the state's
 * dtype.
 */
static int parse(struct change *c, const char *text, const struct state_slice *p,
		 const char *mountpoint)
{
	bool assigns = *text == '=';
	int e;

	*c = (struct change){ .fd = -1 };
	text = skip_sign(text);
	if (assigns && !*text)
		return call_usage("=: a number or a FILE is expected after =");
	e = operation_parse(&c->operation, p->file.dtype, text);
	if (assigns && (operation_reads(text) || e == -EINVAL || e == -EOPNOTSUPP))
		return look_at_file(c, text, p, mountpoint);
	if (e == -EOPNOTSUPP && operation_reads(text) && !dtype_is_float(p->file.dtype))
		return call_fail("%s: only of floating point, not of %s", text,
				 frag_dtype_name(p->file.dtype));
	if (e == -EOPNOTSUPP && operation_reads(text))
		return call_fail("%s: %s has no arithmetic", text,
				 frag_dtype_name(p->file.dtype));
	if (e == -EDOM)
		return call_usage("%s: a division by zero", text);
	if (e == -ERANGE)
		return call_fail("%s: %s has no such number", text,
				 frag_dtype_name(p->file.dtype));
	if (e && !operation_reads(text) && is_number(text))
		return call_fail(e == -EOPNOTSUPP
					 ? "%s: an element of %s is set by zero or = FILE"
					 : "%s: %s has no such number",
				 text, frag_dtype_name(p->file.dtype));
	if (e && operation_reads(text))
		return call_usage("%s: a number is expected after %.2s", text, text);
	return e ? call_usage("%s: a number, zero, = FILE, or *=, /=, +=, -= and a number",
			      text)
		 : 0;
}

/* ---- elements ---- */

/* Makes n new elements, from number k of the slice on. */
static int make(const struct change *c, const struct state_slice *p, uint64_t k, char *elements,
		uint64_t n)
{
	size_t bytes = n * p->file.element;
	int e = 0;

	if (c->fd >= 0)
		return pread(c->fd, elements, bytes, c->begin + (off_t)(k * p->file.element)) ==
				       (ssize_t)bytes
			       ? 0
			       : -EIO;
	if (c->operation.sign != '=')
		e = state_slice_read(p, k, elements, n);
	return e ? e : operation_apply(&c->operation, p->file.dtype, elements, n);
}

static int write_elements(const struct change *c, const struct state_slice *p)
{
	CLEANUP(free) char *elements = malloc(AT_ONCE * ELEMENT_BYTES_MAX);
	struct progress progress;
	int e = elements ? 0 : -ENOMEM;

	progress_begin(&progress, "elements");
	for (uint64_t k = 0, n; !e && k < p->slice.numel; k += n) {
		n = p->slice.numel - k < AT_ONCE ? p->slice.numel - k : AT_ONCE;
		progress_step(&progress, k, p->slice.numel);
		e = make(c, p, k, elements, n);
		if (!e)
			e = state_slice_write(p, k, elements, n);
	}
	progress_end(&progress);
	return e;
}

/* ---- the freeze ---- */

/* Freezes the job, so that no step comes between reading and writing.  A checkpoint needs no
 * freeze: *fd is -1.  *held: *fd holds this freeze; false: the job was frozen already.
 */
static int freeze(const char *mountpoint, int *fd, bool *held)
{
	char path[PATH_MAX], line[32];
	int rc;

	snprintf(path, sizeof(path), "%s/.frag/freeze", mountpoint);
	*fd = open(path, O_WRONLY | O_CLOEXEC);
	if (*fd < 0)
		return errno == ENOENT ? 0 : -errno;
	snprintf(line, sizeof(line), "%d held\n", FREEZE_SECONDS);
	rc = mount_file_order(*fd, line);
	*held = !rc;
	return rc == -EBUSY ? 0 : rc;
}

static bool is_frozen(const char *mountpoint)
{
	char word[8];

	return !mount_file_value(mountpoint, ".frag/freeze", word, sizeof(word)) &&
	       !strncmp(word, "frozen", 6);
}

/* Writes the elements, and commits them.  The freeze may end before that: by fragctl thaw, or
 * because the elements are many.  Elements that were computed before a step must not be
 * committed after it, so the freeze is checked just before the commit.
 */
static int write_and_commit(const struct change *c, const struct state_slice *p,
			    const char *mountpoint, const char *slice, bool freezes)
{
	int e = write_elements(c, p);
	bool over = !e && freezes && !is_frozen(mountpoint);
	struct progress progress;

	if (!e && !over && p->slice.numel) {
		progress_begin(&progress, "committing");
		e = fsync(state_slice_fd(p)) ? -errno : 0;
		progress_end(&progress);
	}
	/* makes the mount forget the staged bytes, which close(2) would commit */
	if ((e || over) && ftruncate(state_slice_fd(p), 0))
		call_fail("%s: %s", slice, strerror(errno));
	if (over)
		return call_fail("%s: the freeze was over too early: nothing is changed",
				 slice);
	return e ? target_fail(mountpoint, slice, -e) : 0;
}

/* ---- by the owners ---- */

/* Has the ranks compute the elements that they have.
 * EOPNOTSUPP: they cannot, or a checkpoint has no ranks.
 */
static int ask_owners(const struct state_slice *p, const char *mountpoint, const char *text)
{
	char path[PATH_MAX], line[2 * PATH_MAX];
	CLEANUP(close) int fd = -1;
	int rc;

	if (strpbrk(p->state, " [")) /* such a line would name another state */
		return EOPNOTSUPP;
	snprintf(line, sizeof(line), "set %s/%s%s %s\n", p->param->path, p->state,
		 p->slice_text, text);
	snprintf(path, sizeof(path), "%s/.frag/control", mountpoint);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? EOPNOTSUPP : errno;
	rc = mount_file_order(fd, line);
	return rc == -ENAMETOOLONG ? EOPNOTSUPP : -rc;
}

/* With --json, prints what was set. */
static int report(const struct call *call, const struct state_slice *p, const char *by)
{
	if (!call_has(call, 'J'))
		return 0;
	return call_print_object(call, "set",
				 json_pack("{s:o s:o s:s s:I s:s}", "name",
					   one_line_json(p->param->name), "state",
					   one_line_json(p->state), "slice", p->slice_text,
					   "numel", (json_int_t)p->slice.numel, "by", by));
}

/* Returns true, and sets *rc to the exit status, if the owners have set the elements, or have
 * failed to; false: nothing has changed.
 */
static bool set_by_owners(const struct call *call, const char *mountpoint, const char *slice,
			  const char *text, int *rc)
{
	struct change c = { .fd = -1 };
	struct state_slice p;
	int e = EOPNOTSUPP;

	*rc = state_slice_open(&p, mountpoint, slice, O_RDWR);
	if (*rc)
		return true;
	*rc = parse(&c, text, &p, mountpoint);
	if (!*rc && c.fd < 0)
		e = ask_owners(&p, mountpoint, skip_sign(text));
	if (!*rc && e && e != EOPNOTSUPP)
		*rc = target_fail(mountpoint, slice, e);
	if (!*rc && !e)
		*rc = report(call, &p, "ranks");
	if (c.fd >= 0)
		close(c.fd);
	state_slice_close(&p);
	return *rc || !e;
}

/* ---- by this program ---- */

/* Sets the elements.  The state is opened after the freeze, because an open file shows one
 * generation.
 */
static int set(const struct call *call, const char *mountpoint, const char *slice,
	       const char *text)
{
	bool held = false;
	CLEANUP(close) int freezer = -1;
	struct change c = { .fd = -1 };
	struct state_slice p;
	int rc, e = operation_reads(text) ? freeze(mountpoint, &freezer, &held) : 0;

	if (e)
		return call_fail("%s: cannot be frozen: %s", target_name(mountpoint),
				 strerror(-e));
	rc = state_slice_open(&p, mountpoint, slice, O_RDWR);
	if (rc)
		return rc;
	rc = parse(&c, text, &p, mountpoint);
	if (!rc)
		rc = write_and_commit(&c, &p, mountpoint, slice, freezer >= 0);
	/* The thaw fails if the freeze ended between the check and the commit. */
	if (!rc && held && mount_file_order(freezer, "0\n"))
		rc = call_fail("%s: is changed, but the freeze was over before that: a step "
			       "may lie between reading and writing",
			       slice);
	if (!rc)
		rc = report(call, &p, "fragctl");
	if (c.fd >= 0)
		close(c.fd);
	state_slice_close(&p);
	return rc;
}

int set_run(const struct call *call)
{
	char mountpoint[TARGET_PATH_MAX], text[PATH_MAX + 8];
	int rc = target_open(call->job, true, mountpoint);

	if (rc)
		return rc;
	snprintf(text, sizeof(text), "%s%s%s", call->words[1], call->words[2] ? " " : "",
		 call->words[2] ? call->words[2] : "");
	if (set_by_owners(call, mountpoint, call->words[0], text, &rc))
		return rc;
	return set(call, mountpoint, call->words[0], text);
}
