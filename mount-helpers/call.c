/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/call.h"

#include "engine/base/base.h"
#include "engine/base/one-line.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { JSON_MAJOR = 1, JSON_MINOR = 2 };

bool call_has(const struct call *call, char letter)
{
	return strchr(call->given, letter) != NULL;
}

static void print_error(const char *format, va_list list)
{
	char text[4096], line[sizeof(text)];

	vsnprintf(text, sizeof(text), format, list);
	one_line(text, line, sizeof(line));
	fflush(stdout);
	/* clears a line of progress that may be there */
	fprintf(stderr, "%sfragctl: %s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", line);
}

int call_fail(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	print_error(format, list);
	va_end(list);
	return FRAGCTL_FAILURE;
}

int call_usage(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	print_error(format, list);
	va_end(list);
	return FRAGCTL_USAGE;
}

json_t *call_output_version(const struct call *call)
{
	char command[64];

	snprintf(command, sizeof(command), "fragctl %s", call->name);
	return json_pack("{s:s s:i s:i}", "command", command, "major", JSON_MAJOR, "minor",
			 JSON_MINOR);
}

int call_print_json(json_t *root)
{
	int failed = !root || json_dumpf(root, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);

	json_decref(root);
	/* If stdout has failed, the flush at this newline fails once more, and finish_output
	 * gives the errno.
	 */
	putchar('\n');
	return failed && !ferror(stdout) ? call_fail("%s", strerror(ENOMEM)) : 0;
}

int call_print_object(const struct call *call, const char *name, json_t *value)
{
	return call_print_json(json_pack("{s:o s:o}", "output_version",
					 call_output_version(call), name, value));
}
