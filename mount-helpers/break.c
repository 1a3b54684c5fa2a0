/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/base.h"
#include "engine/base/one-line.h"
#include "engine/catalog/condition.h"
#include "mount-helpers/commands.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/target.h"
#include "mount-helpers/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 512, SHOWN_MAX = 100, LOOK_MS = 1000, HELD_MS = 10000, TRY_US = 10000 };

static const char *why_not(int error)
{
	switch (error) {
	case EINVAL:
		return "expected QUANTITY(STATE[, PATTERN]) > NUMBER, where QUANTITY is nan, "
		       "inf, norm or absmax, or off";
	case ENAMETOOLONG:
		return "a state's name has 63 bytes at most, a pattern 127";
	case ESTALE:
		return "the ranks pass boundaries faster than they can agree on one";
	case EIO:
		return "the job, or the rank that would have to agree, is lost";
	case EROFS:
		return "is not mounted with -o rw";
	default:
		return condition_why_not(-error);
	}
}

static int fail(const char *mountpoint, const char *condition, int error)
{
	if (error == EINVAL || error == ENAMETOOLONG)
		return call_usage("%.*s%s: %s", SHOWN_MAX, *condition ? condition : "break",
				  strlen(condition) > SHOWN_MAX ? "..." : "", why_not(error));
	if (error == ENOENT || error == E2BIG || error == EOPNOTSUPP)
		return call_fail("%s: %s", condition, why_not(error));
	return call_fail("%s: %s", target_name(mountpoint), why_not(error));
}

/* Writes a break line.  *held: the open file that holds the watch; held NULL: the mount keeps
 * it.
 */
static int say(const char *mountpoint, const char *condition, unsigned seconds, int *held)
{
	char path[PATH_MAX], line[LINE_MAX_BYTES], bound[32] = "";
	int fd, length, e = 0;

	if (seconds)
		snprintf(bound, sizeof(bound), " for %u", seconds);
	length = snprintf(line, sizeof(line), "break %s%s%s\n", condition, bound,
			  held ? " held" : "");
	snprintf(path, sizeof(path), "%s/.frag/control", mountpoint);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return call_fail("%s: no mount of fragfs is there", target_name(mountpoint));
	if (fd < 0 || length >= (int)sizeof(line))
		e = fd < 0 ? errno : ENAMETOOLONG;
	else
		e = -mount_file_order(fd, line);
	if (!e && held)
		*held = fd;
	else if (fd >= 0)
		close(fd);
	return e ? fail(mountpoint, condition, e) : 0;
}

static int show(const struct call *call, const char *mountpoint)
{
	char line[LINE_MAX_BYTES];

	if (mount_file_value(mountpoint, ".frag/control", line, sizeof(line)))
		return call_fail("%s: %s", target_name(mountpoint), strerror(errno));
	if (call_has(call, 'J'))
		return call_print_object(call, "control", one_line_json(line));
	puts(line);
	return 0;
}

/* ---- waiting ---- */

struct wait {
	const char *mountpoint;
	FILE *events;
	char condition[CONDITION_TEXT_MAX]; /* as /events has it */
	/* content of .frag/control while the mount watches */
	char control[LINE_MAX_BYTES];
	bool watched;
	uint64_t looked_ms; /* time of the last look at .frag/control */
	/* time until which the event of the watch's end may come; 0: the watch goes on */
	uint64_t over_ms;
	char why[256]; /* reason in the last break-over of the condition */
};

static bool is_named(const json_t *event, const char *name)
{
	const char *of = json_string_value(json_object_get(event, "event"));

	return of && !strcmp(of, name);
}

static bool is_of(const struct wait *w, const json_t *event, const char *name)
{
	const char *of = json_string_value(json_object_get(event, "condition"));

	return is_named(event, name) && of && !strcmp(of, w->condition);
}

static bool is_over(const struct wait *w)
{
	char line[LINE_MAX_BYTES];

	return mount_file_value(w->mountpoint, ".frag/control", line, sizeof(line)) ||
	       strcmp(line, w->control) != 0;
}

/* Returns true when there is nothing more to wait for.  The event of the watch's end may come
 * later than the end itself, and never comes if no rank that has it lives.
 */
static bool is_given_up(struct wait *w)
{
	uint64_t now = monotonic_ms();

	if (!w->watched || now < w->looked_ms + LOOK_MS)
		return false;
	w->looked_ms = now;
	if (!is_over(w)) /* also if the mount has set the watch anew */
		w->over_ms = 0;
	else if (!w->over_ms)
		w->over_ms = now + LOOK_MS;
	else
		return now >= w->over_ms;
	return false;
}

/* Returns the next event, and in *line, which the caller frees, its text.  NULL: no event will
 * come, or is_given_up.  The file of events ends with the job, but goes on when the job is
 * started again, and until then the mount goes on watching.
 */
static json_t *next_event(struct wait *w, char **line)
{
	struct pollfd fd = { .fd = fileno(w->events), .events = POLLIN };
	size_t room = 0;
	json_t *event;
	bool ended;

	*line = NULL;
	for (;;) {
		if (getline(line, &room, w->events) > 0) {
			event = json_loads(*line, 0, NULL);
			if (event)
				return event;
			continue;
		}
		ended = feof(w->events);
		if (ended ? !w->watched : errno != EAGAIN && errno != EINTR)
			return NULL;
		clearerr(w->events);
		if (is_given_up(w))
			return NULL;
		poll(&fd, ended ? 0 : 1, LOOK_MS);
	}
}

/* Prints the event with which the watch ends.  holds: a private mount, which ends with this
 * program, keeps up the freeze, so this waits until the job is thawed.
 */
static int follow(const struct call *call, struct wait *w, bool holds)
{
	int rc = FRAGCTL_FAILURE;
	struct progress progress;
	json_t *event = NULL;
	bool done = false;
	char *line = NULL;
	const char *why;

	progress_begin(&progress, "waiting for the condition");
	while (!done && (event = next_event(w, &line))) {
		if (w->watched && is_of(w, event, "break")) {
			progress_end(&progress);
			watch_print(call, line, event);
			fflush(stdout);
			w->watched = false;
			rc = 0;
			done = !holds;
		} else if (w->watched && is_of(w, event, "break-over")) {
			/* No end: a watch before this one may have had the same condition. */
			why = json_string_value(json_object_get(event, "why"));
			one_line(why ? why : "", w->why, sizeof(w->why));
			w->looked_ms = 0;
		} else if (!w->watched && is_named(event, "thaw")) {
			done = true;
		}
		json_decref(event);
		free(line);
	}
	progress_end(&progress);
	if (!event)
		free(line);
	if (w->watched)
		call_fail("%s: %s", *call->words, *w->why ? w->why : "the watch is over");
	return rc;
}

/* Waits until the mount knows that all ranks stand, which may be later than the event, so that
 * the caller's next command finds the job frozen.
 */
static void wait_until_held(const struct wait *w)
{
	uint64_t end_ms = monotonic_ms() + HELD_MS;

	while (!is_over(w) && monotonic_ms() < end_ms)
		usleep(TRY_US);
}

/* Watches until the condition holds.  An open file holds the watch, so that it ends with this
 * program, however that ends.
 */
static int wait_for(const struct call *call, const char *mountpoint, bool holds)
{
	struct wait w = { .mountpoint = mountpoint, .watched = true };
	char path[PATH_MAX];
	struct wire_condition c;
	uint32_t ms;
	int fd, held, rc = condition_parse(*call->words, &c, &ms);

	if (rc)
		return fail(mountpoint, *call->words, -rc);
	condition_print(&c, w.condition);
	snprintf(w.control, sizeof(w.control), "break %s for %u", w.condition,
		 call->seconds ? call->seconds : ms / 1000);
	snprintf(path, sizeof(path), "%s/events", mountpoint);
	/* Without blocking: next_event reads all events, and waits by poll(2). */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	w.events = fd < 0 ? NULL : fdopen(fd, "r");
	if (!w.events)
		return call_fail("%s: %s", target_name(mountpoint), strerror(errno));
	rc = say(mountpoint, *call->words, call->seconds, &held);
	if (!rc) {
		rc = follow(call, &w, holds);
		if (!rc && !holds)
			wait_until_held(&w);
		close(held);
	}
	fclose(w.events);
	return rc;
}

static bool is_off(const char *words)
{
	char word[8], rest;

	return sscanf(words, "%7s %c", word, &rest) == 1 && !strcmp(word, "off");
}

/* Without a word: prints the watch.  Without -w, over a mount: returns when all ranks watch. */
int break_run(const struct call *call)
{
	char mountpoint[TARGET_PATH_MAX];
	bool off, made;
	int rc;

	if (!*call->words && (call_has(call, 'w') || call->seconds))
		return call_usage("-%c: a CONDITION is needed", call->seconds ? 't' : 'w');
	rc = target_open(call->job, *call->words, mountpoint);
	if (rc)
		return rc;
	if (target_is_checkpoint(mountpoint))
		return call_fail("%s: a checkpoint is mounted there: nothing trains",
				 target_name(mountpoint));
	if (!*call->words)
		return show(call, mountpoint);
	off = is_off(*call->words);
	made = target_is_private(mountpoint);
	if (off && made)
		return call_usage("off: only the mount that watches can end it");
	if (!off && (made || call_has(call, 'w')))
		return wait_for(call, mountpoint, made);
	rc = say(mountpoint, *call->words, off ? 0 : call->seconds, NULL);
	return !rc && call_has(call, 'J') ? show(call, mountpoint) : rc;
}
