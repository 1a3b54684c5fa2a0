/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "fs/freeze.h"
#include "fs/place.h"
#include "fs/set.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { SECONDS_MAX = 24 * 3600, CONTROL_LINE_MAX = 512 };

static const char expected[] =
	".frag/control: expected \"break QUANTITY(STATE[, PATTERN]) > NUMBER [for SECONDS] "
	"[held]\", where QUANTITY is nan, inf, norm or absmax, \"break off\", "
	"\"set params/NAME/STATE[SLICE] EXPRESSION\", or "
	"\"place params/NAMES/STATES TIER\"";

static int parse_freeze(const char *text, size_t size, uint32_t *ms, bool *held)
{
	char line[32], word[8], rest;
	unsigned seconds;
	int n;

	if (size >= sizeof(line))
		return -EINVAL;
	memcpy(line, text, size);
	line[size] = '\0';
	n = sscanf(line, "%6u %7s %c", &seconds, word, &rest);
	*held = n == 2 && !strcmp(word, "held");
	if ((n != 1 && !*held) || seconds > SECONDS_MAX)
		return -EINVAL;
	*ms = seconds * 1000;
	return 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool begins_with(const char *text, size_t size, const char *word)
{
	return size >= strlen(word) && !memcmp(text, word, strlen(word));
}

static bool is_edit(const char *text, size_t size)
{
	return begins_with(text, size, SET_WORD);
}

static bool is_place(const char *text, size_t size)
{
	return begins_with(text, size, PLACE_WORD) || begins_with(text, size, PLACED_WORD);
}

/* Copies the line, without blanks at its end.  Points *watch to the condition of a `break`
 * line, "" for off; NULL: the line is a set, place or placed line.
 * -ENAMETOOLONG: the line is longer than any with a pattern that is allowed.
 */
static int parse_control(const char *text, size_t size, char line[CONTROL_LINE_MAX],
			 const char **watch, bool *held)
{
	static const char last[] = " held";
	size_t word = strlen("break"), length = strlen(last);

	if (size && text[size - 1] == '\n')
		size--;
	while (size && is_blank(text[size - 1]))
		size--;
	if (size >= CONTROL_LINE_MAX)
		return -ENAMETOOLONG;
	if (memchr(text, '\0', size))
		return -EINVAL;
	memcpy(line, text, size);
	line[size] = '\0';
	*watch = NULL;
	if (is_edit(line, size) || is_place(line, size))
		return 0;
	if (strncmp(line, "break ", word + 1) != 0)
		return -EINVAL;
	*held = size > length && !strcmp(line + size - length, last);
	if (*held)
		for (size -= length; is_blank(line[size - 1]); size--)
			;
	line[size] = '\0';
	*watch = line + word + strspn(line + word, " ");
	if (!strcmp(*watch, "off"))
		*watch = "";
	return *held && !**watch ? -EINVAL : 0;
}

static void log_refused(int result, bool edit)
{
	if (result == -EINVAL)
		log_warn("%s", expected);
	if (result == -ENAMETOOLONG && edit)
		log_warn(".frag/control: a set line has %d bytes at most",
			 CONTROL_LINE_MAX - 1);
	if (result == -ENAMETOOLONG && !edit)
		log_warn(".frag/control: a state's name has 63 bytes at most, a pattern 127");
}

static void forget(struct engine_freeze *freeze, int result)
{
	free(freeze);
}

/* Ends the freeze or the watch that this file has held; id 0: it has held none. */
static void let_go(struct handle *h, uint64_t id)
{
	struct engine_freeze *end = id ? malloc(sizeof(*end)) : NULL;

	if (!end)
		return;
	*end = (struct engine_freeze){ .id = id, .done = forget };
	if (h->node.slot == TEXT_CONTROL)
		end->watch = "";
	engine_freeze(h->fs->engine, end);
}

static void done(struct engine_freeze *freeze, int result)
{
	struct request *r = freeze->owner;
	bool control = r->handle->node.slot == TEXT_CONTROL;
	uint64_t before = 0;

	request_done(r);
	if (control)
		log_refused(result, false);
	if (!result && r->held)
		before = atomic_exchange(&r->handle->held, freeze->id);
	if (control) /* a file holds one watch: a new one ends the one before */
		let_go(r->handle, before);
	if (result)
		fuse_reply_err(r->req, request_error(result));
	else
		fuse_reply_write(r->req, r->size);
	request_put(r);
}

static void run_line(struct handle *h, fuse_req_t req, const char *line, size_t size,
		     int (*run)(fuse_req_t req, const struct deferred_call *c))
{
	struct fuse_file_info file = { .fh = (uintptr_t)h };

	deferred_run(&h->fs->deferred, req,
		     &(struct deferred_call){
			     .run = run, .name = line, .size = size, .file = &file });
}

void freeze_write(struct handle *h, fuse_req_t req, const char *text, size_t size)
{
	bool control = h->node.slot == TEXT_CONTROL, held = false;
	char line[CONTROL_LINE_MAX];
	const char *watch = NULL;
	struct request *r;
	uint32_t ms = 0;
	int rc = control ? parse_control(text, size, line, &watch, &held)
			 : parse_freeze(text, size, &ms, &held);

	if (control)
		log_refused(rc, is_edit(text, size));
	if (control && !rc && !watch) {
		run_line(h, req, line, size, is_edit(text, size) ? set_line : place_line);
		return;
	}
	r = rc ? NULL : request_get(&h->fs->requests, req, h);
	if (!r) {
		fuse_reply_err(req, rc ? -rc : ENOMEM);
		return;
	}
	handle_ref(h);
	r->kind = REQUEST_FREEZE;
	r->held = held && (ms || control);
	r->size = size;
	r->freeze = (struct engine_freeze){
		.ms = ms,
		.watch = watch,
		.held = r->held,
		.thread = fuse_req_ctx(req)->pid,
		.done = done,
		.owner = r,
	};
	if (!ms && !control)
		r->freeze.id = atomic_exchange(&h->held, 0);
	/* the result is not used: if a signal came first, request_submitted cancels */
	request_arm(r);
	engine_freeze(h->fs->engine, &r->freeze);
	request_submitted(r);
}

void freeze_close(struct handle *h)
{
	let_go(h, atomic_exchange(&h->held, 0));
}
