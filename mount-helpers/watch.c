/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"
#include "mount-helpers/target.h"
#include "mount-helpers/watch.h"

#include "engine/base/base.h"
#include "engine/base/one-line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The kinds of events, as fragfs(1) has them. */
static const char *const events[] = { "step",      "phase",     "edit",         "freeze",
				      "thaw",      "break",     "break-over",   "rank-lost",
				      "rank-left", "rank-back", "view-evicted", "lost" };

static bool is_event(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		if (!strcmp(name, events[i]))
			return true;
	return false;
}

static int fail_as_unknown(const char *name)
{
	char list[256] = "";

	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), " %s", events[i]);
	return call_usage("%s: no event; there are:%s", name, list);
}

static bool is_wanted(char *const *names, const char *event)
{
	if (!*names)
		return true;
	while (*names && strcmp(*names, event) != 0)
		names++;
	return *names;
}

/* Prints the members of an event as NAME VALUE.  A parameter's name may have any bytes. */
static void print_event(const json_t *event)
{
	double seconds = json_number_value(json_object_get(event, "time"));
	time_t whole = (time_t)seconds;
	const char *name = json_string_value(json_object_get(event, "event"));
	char clock[16], kind[32];
	struct tm tm;
	json_t *value;

	if (!localtime_r(&whole, &tm) || !strftime(clock, sizeof(clock), "%T", &tm))
		strcpy(clock, "-");
	one_line(name ? name : "?", kind, sizeof(kind));
	printf("%s.%03d  %-12s", clock, (int)((seconds - (double)whole) * 1000), kind);
	json_object_foreach ((json_t *)event, name, value) {
		char *text;

		if (!strcmp(name, "event") || !strcmp(name, "time"))
			continue;
		text = json_is_string(value)
			       ? strdup(json_string_value(value))
			       : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
		putchar(' ');
		one_line_put(stdout, name);
		putchar(' ');
		one_line_put(stdout, text ? text : "?");
		free(text);
	}
	putchar('\n');
}

void watch_print(const struct call *call, const char *line, const json_t *event)
{
	if (call_has(call, 'J'))
		fputs(line, stdout);
	else
		print_event(event);
}

/* Prints events until no more come, or as many as asked for were printed. */
static int follow(const struct call *call, FILE *file)
{
	unsigned left = call->count;
	char *line = NULL;
	size_t room = 0;
	json_t *event;
	int e;

	errno = 0;
	while (getline(&line, &room, file) > 0) {
		event = json_loads(line, 0, NULL);
		if (event && is_wanted(call->words,
				       json_string_value(json_object_get(event, "event")))) {
			watch_print(call, line, event);
			fflush(stdout);
			if (left && !--left) {
				json_decref(event);
				break;
			}
		}
		json_decref(event);
		errno = 0;
	}
	e = ferror(file) ? errno : 0;
	free(line);
	return e ? call_fail("events: %s", strerror(e)) : 0;
}

int watch_run(const struct call *call)
{
	char mountpoint[TARGET_PATH_MAX], path[PATH_MAX];
	FILE *file;
	int rc;

	for (char **name = call->words; *name; name++)
		if (!is_event(*name))
			return fail_as_unknown(*name);
	rc = target_open(call->job, false, mountpoint);
	if (rc)
		return rc;
	snprintf(path, sizeof(path), "%s/events", mountpoint);
	file = fopen(path, "re");
	if (!file)
		return call_fail("%s: %s", target_name(mountpoint),
				 errno == ENOENT ? "a checkpoint has no events"
						 : strerror(errno));
	rc = follow(call, file);
	fclose(file);
	return rc;
}
