/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/state-slice.h"
#include "mount-helpers/target.h"

#include "engine/base/base.h"
#include "engine/base/fd.h"
#include "engine/base/one-line.h"
#include "engine/base/element.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHOWN_MAX = 4096, CHUNK_BYTES = 1 << 20 };

/* ---- to standard output ---- */

/* Prints the elements as numpy does: the last axis goes from left to right. */
static void print_elements(const struct call *call, const struct state_slice *p,
			   char (*texts)[ELEMENT_TEXT_MAX])
{
	const struct slice *s = &p->slice;
	uint64_t across = s->ndim ? s->shape[s->ndim - 1] : 1;
	uint64_t down = s->ndim > 1 ? s->shape[s->ndim - 2] : 1;
	bool fields = call_has(call, 'H');
	int width = 0;

	for (uint64_t i = 0; i < s->numel; i++)
		width = (int)strlen(texts[i]) > width ? (int)strlen(texts[i]) : width;
	for (uint64_t i = 0; i < s->numel; i++) {
		if (i && !fields && i % (across * down) == 0)
			putchar('\n');
		printf("%*s%s", fields ? 0 : width, texts[i],
		       (i + 1) % across == 0 ? "\n"
		       : fields              ? "\t"
					     : "  ");
	}
}

static json_t *value_json(const char *text)
{
	/* jansson reads -0 as an integer, which has no sign */
	json_t *value =
		strcmp(text, "-0") ? json_loads(text, JSON_DECODE_ANY, NULL) : json_real(-0.0);

	return value ? value : json_string(text);
}

static json_t *to_json(const struct state_slice *p, char (*texts)[ELEMENT_TEXT_MAX])
{
	json_t *shape = json_array(), *values = json_array();

	for (uint32_t d = 0; d < p->slice.ndim; d++)
		json_array_append_new(shape, json_integer((json_int_t)p->slice.shape[d]));
	for (uint64_t i = 0; i < p->slice.numel; i++)
		json_array_append_new(values, value_json(texts[i]));
	return json_pack("{s:o s:o s:s s:o s:o}", "name", one_line_json(p->param->name),
			 "state", one_line_json(p->state), "dtype",
			 frag_dtype_name(p->file.dtype), "shape", shape, "values", values);
}

static int show(const struct call *call, const struct state_slice *p, const char *mountpoint)
{
	CLEANUP(free) char(*texts)[ELEMENT_TEXT_MAX] = NULL;
	CLEANUP(free) char *bytes = NULL;
	uint64_t n = p->slice.numel;
	int e;

	if (n > SHOWN_MAX)
		return call_fail("%" PRIu64 " elements: name a slice of at most %d, or a file "
				 "with -o",
				 n, SHOWN_MAX);
	if (!element_width(p->file.dtype))
		return call_fail("%s has no text: name a file with -o",
				 frag_dtype_name(p->file.dtype));
	bytes = malloc(n * p->file.element + 1);
	texts = calloc(n + 1, sizeof(*texts));
	e = bytes && texts ? state_slice_read(p, 0, bytes, n) : -ENOMEM;
	if (e)
		return target_fail(mountpoint, *call->words, -e);
	for (uint64_t i = 0; i < n; i++)
		element_format(p->file.dtype, bytes + i * p->file.element, texts[i]);
	if (call_has(call, 'J'))
		return call_print_object(call, "slice", to_json(p, texts));
	print_elements(call, p, texts);
	return 0;
}

/* ---- to a file ---- */

static int copy_elements(const struct state_slice *p, int to, char *bytes)
{
	uint64_t at_once = CHUNK_BYTES / p->file.element;
	struct progress progress;
	int e = 0;

	progress_begin(&progress, "elements");
	for (uint64_t k = 0, n; !e && k < p->slice.numel; k += n) {
		n = p->slice.numel - k < at_once ? p->slice.numel - k : at_once;
		progress_step(&progress, k, p->slice.numel);
		e = state_slice_read(p, k, bytes, n);
		if (!e)
			e = fd_put_all(to, bytes, n * p->file.element);
	}
	progress_end(&progress);
	return e;
}

/* Copies the mount's .npy file of the slice. */
static int copy_npy(const struct state_slice *p, const char *mountpoint, int to, char *bytes)
{
	CLEANUP(close) int from = state_slice_open_npy(p, mountpoint);
	struct progress progress;
	uint64_t done = 0;
	ssize_t got;
	int e = from < 0 ? from : 0;

	progress_begin(&progress, "bytes");
	for (; !e && (got = read(from, bytes, CHUNK_BYTES)); done += (uint64_t)got) {
		e = got < 0 ? -errno : fd_put_all(to, bytes, (size_t)got);
		progress_step(&progress, done, p->slice.numel * p->file.element);
	}
	progress_end(&progress);
	return e;
}

static int save(const char *name, const struct state_slice *p, const char *mountpoint)
{
	size_t length = strlen(name);
	bool npy = length > 4 && !strcmp(name + length - 4, ".npy"), own = strcmp(name, "-");
	CLEANUP(free) char *bytes = malloc(CHUNK_BYTES);
	int to = own ? open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)
		     : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0),
	    e;
	struct stat file = { 0 };

	if (!own)
		name = "standard output";

	if (to < 0 || !bytes) {
		e = to < 0 ? -errno : -ENOMEM;
		if (to >= 0)
			close(to);
		return call_fail("%s: %s", name, strerror(-e));
	}
	e = npy ? copy_npy(p, mountpoint, to, bytes) : copy_elements(p, to, bytes);
	fstat(to, &file);
	if (close(to) && !e)
		e = -errno;
	if (!e)
		return 0;
	if (own && S_ISREG(file.st_mode)) /* a device is not removed */
		unlink(name);
	return call_fail("%s: %s", name, strerror(-e));
}

int get_run(const struct call *call)
{
	char mountpoint[TARGET_PATH_MAX];
	struct state_slice p;
	int rc = target_open(call->job, false, mountpoint);

	if (!rc)
		rc = state_slice_open(&p, mountpoint, *call->words, O_RDONLY);
	if (rc)
		return rc;
	rc = call->output ? save(call->output, &p, mountpoint) : show(call, &p, mountpoint);
	state_slice_close(&p);
	return rc;
}
