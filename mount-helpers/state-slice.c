/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/state-slice.h"

#include "engine/base/base.h"
#include "engine/base/fd.h"
#include "mount-helpers/target.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Finds the parameter, and copies STATE, which is behind its name. */
static int find_state(struct state_slice *p, const char *mountpoint, const char *text,
		      size_t length, int flags)
{
	const char *slash = memrchr(text, '/', length), *main_state;
	size_t front = slash ? (size_t)(slash - text) : 0;
	bool found;
	char **states;

	p->param = params_find(&p->params, text, length);
	if (!p->param && slash && length - front - 1 < sizeof(p->state)) {
		p->param = params_find(&p->params, text, front);
		snprintf(p->state, sizeof(p->state), "%.*s", (int)(length - front - 1),
			 slash + 1);
	}
	if (!p->param)
		return call_fail("%s: no parameter has that name", text);
	if (!*p->state && (flags & O_ACCMODE) != O_RDONLY)
		return call_usage("%s: which state? name it, as in %s/fp32", text,
				  p->param->name);
	states = params_states(mountpoint, p->param);
	if (!states)
		return target_fail(mountpoint, p->param->name, errno);
	if (*p->state) {
		char **state = states;

		while (*state && strcmp(*state, p->state) != 0)
			state++;
		found = *state;
		params_free_names(states);
		return found ? 0 : call_fail("%s: has no state %s", p->param->name, p->state);
	}
	main_state = state_file_main(states);
	if (main_state)
		snprintf(p->state, sizeof(p->state), "%s", main_state);
	params_free_names(states);
	return main_state ? 0 : call_fail("%s: has no state", p->param->name);
}

/* Returns true if the first bytes of text are NAME or NAME/STATE of a parameter. */
static bool begins_with_param(const struct state_slice *p, const char *text, size_t length)
{
	const char *slash = memrchr(text, '/', length);

	return params_find(&p->params, text, length) ||
	       (slash && params_find(&p->params, text, (size_t)(slash - text)));
}

/* Returns where the slice begins.  A parameter's name may have brackets itself: the longest
 * name that exists counts.  A slice without its last bracket counts too; parse_slice refuses
 * it.
 */
static size_t length_before_slice(const struct state_slice *p, const char *text)
{
	size_t length = strlen(text);
	const char *bracket = strrchr(text, '[');

	if (!bracket || params_find(&p->params, text, length))
		return length;
	if (text[length - 1] != ']' &&
	    (strchr(bracket, '/') || !begins_with_param(p, text, (size_t)(bracket - text))))
		return length;
	return (size_t)(bracket - text);
}

/* Copies the slice without its blanks. */
static int keep_text(struct state_slice *p, const char *text)
{
	size_t n = 0;

	for (const char *c = text; *c; c++) {
		if (*c == ' ')
			continue;
		if (n == sizeof(p->slice_text) - 1)
			return call_usage("%s: a slice of at most %zu characters", text, n);
		p->slice_text[n++] = *c;
	}
	p->slice_text[n] = '\0';
	return 0;
}

static int parse_slice(struct state_slice *p, const char *text)
{
	const char *end;
	int e = keep_text(p, text);

	if (e)
		return e;
	if (!*text) {
		slice_all(&p->slice, p->file.shape, p->file.ndim);
		return 0;
	}
	e = slice_parse(&p->slice, text, &end, p->file.shape, p->file.ndim);
	if (e == -ERANGE)
		return call_fail("%s: out of the range of %s", text, p->param->name);
	if (e || *end)
		return call_usage("%s: a slice, such as [0:16,:] or [-1,::2]", text);
	return 0;
}

/* Opens a file that the mount makes of the slice.  Returns a descriptor, or -errno. */
static int open_form(const struct state_slice *p, const char *mountpoint, const char *form,
		     int flags)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/%s/%s%s%s", mountpoint, p->param->path, p->state,
		 p->slice_text, form);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int state_slice_open(struct state_slice *p, const char *mountpoint, const char *text, int flags)
{
	char *none = NULL;
	size_t length;
	int rc;

	*p = (struct state_slice){ .file = { .fd = -1 }, .gathered = -1 };
	rc = params_read(&p->params, mountpoint, &none);
	if (rc)
		return rc;
	length = length_before_slice(p, text);
	rc = find_state(p, mountpoint, text, length, flags);
	if (!rc)
		rc = state_file_open(&p->file, mountpoint, p->param, p->state, flags);
	if (!rc)
		rc = parse_slice(p, text + length);
	/* Elements that are apart come and go by few requests to the mount's own file of the
	 * slice, if its name is not too long.
	 */
	if (!rc && !slice_is_range(&p->slice))
		p->gathered = open_form(p, mountpoint, "", flags);
	if (rc)
		state_slice_close(p);
	return rc;
}

void state_slice_close(struct state_slice *p)
{
	state_file_close(&p->file);
	if (p->gathered >= 0)
		close(p->gathered);
	params_free(&p->params);
}

int state_slice_open_npy(const struct state_slice *p, const char *mountpoint)
{
	return open_form(p, mountpoint, ".npy", O_RDONLY);
}

int state_slice_fd(const struct state_slice *p)
{
	return p->gathered >= 0 ? p->gathered : p->file.fd;
}

/* ---- elements ---- */

enum { GAP_MAX = 64 };

/* Reads elements that are apart: those that are near each other in one read, with the elements
 * between.
 */
static int read_apart(const struct state_file *s, struct slice_run run, char *into)
{
	uint64_t gap = run.step < 0 ? -(uint64_t)run.step : (uint64_t)run.step;
	uint64_t span = (run.count - 1) * gap + 1;
	uint64_t low = run.step < 0 ? run.first - (span - 1) : run.first;
	CLEANUP(free) char *all = gap <= GAP_MAX ? malloc(span * s->element) : NULL;
	int e = all ? state_file_read(s, low, all, span) : 0;

	for (uint64_t i = 0; !e && i < run.count; i++) {
		uint64_t at = run.first + i * (uint64_t)run.step;

		if (all)
			memcpy(into + i * s->element, all + (at - low) * s->element,
			       s->element);
		else
			e = state_file_read(s, at, into + i * s->element, 1);
	}
	return e;
}

int state_slice_read(const struct state_slice *p, uint64_t k, void *into, uint64_t n)
{
	size_t size = p->file.element;
	int e = 0;

	if (p->gathered >= 0)
		return fd_read_all(p->gathered, into, n * size, k * size);
	for (uint64_t done = 0; !e && done < n;) {
		struct slice_run run = slice_run(&p->slice, k + done);

		run.count = run.count < n - done ? run.count : n - done;
		if (run.step == 1)
			e = state_file_read(&p->file, run.first, (char *)into + done * size,
					    run.count);
		else
			e = read_apart(&p->file, run, (char *)into + done * size);
		done += run.count;
	}
	return e;
}

/* Writes only the elements of the slice: the elements between them are the trainer's. */
int state_slice_write(const struct state_slice *p, uint64_t k, const void *from, uint64_t n)
{
	size_t size = p->file.element;
	int e = 0;

	if (p->gathered >= 0)
		return fd_write_all(p->gathered, from, n * size, k * size);
	for (uint64_t done = 0; !e && done < n;) {
		struct slice_run run = slice_run(&p->slice, k + done);
		const char *at = (const char *)from + done * size;

		run.count = run.count < n - done ? run.count : n - done;
		if (run.step == 1)
			e = fd_write_all(p->file.fd, at, run.count * size, run.first * size);
		for (uint64_t i = 0; run.step != 1 && !e && i < run.count; i++)
			e = fd_write_all(p->file.fd, at + i * size, size,
					 (run.first + i * (uint64_t)run.step) * size);
		done += run.count;
	}
	return e;
}
