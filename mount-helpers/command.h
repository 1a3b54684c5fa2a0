/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_COMMAND_H
#define MOUNT_HELPERS_COMMAND_H

/* The call of a command of fragctl, by its words and options, and what commands share to
 * answer: exit statuses, JSON.  The table of commands is in fragctl.c.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FRAGCTL_FAILURE = 1,
	FRAGCTL_USAGE = 2,
	FRAGCTL_FOUND = 3 /* diff: they differ; doctor: there is something to mend */
};

struct call {
	const char *name; /* of the command */
	char **words;     /* its arguments; NULL ends them */
	char **program;   /* what follows "--"; NULL: there was no "--" */
	char given[32];   /* letters of the options; '-': there was a "--" */
	unsigned seconds; /* -t; 0: not given */
	unsigned count;   /* -n; 0: not given */
	unsigned rank;    /* -R */
	/* -S, and so on in the order of the table of options; 0: not given */
	unsigned stage, world, tp, sp, ep, hpz, states;
	const char *offload;            /* -L; NULL: not given */
	const char *job, *output, *svg; /* -j, -o, -s; NULL: not given */
};

/* Returns true if the option with that letter was given. */
bool call_has(const struct call *call, char letter);

/* Prints "fragctl: " and a line to standard error; returns FRAGCTL_FAILURE. */
int call_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Does the same; returns FRAGCTL_USAGE: words, options or their values are wrong. */
int call_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns the object that begins all JSON output: the command, and versions of its members. */
json_t *call_output_version(const struct call *call);
/* Prints root, and releases it; NULL is an error.  Returns the exit status. */
int call_print_json(json_t *root);
/* Does the same with an object of the output's version and a value under a name. */
int call_print_object(const struct call *call, const char *name, json_t *value);

#endif
