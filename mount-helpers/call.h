/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_CALL_H
#define MOUNT_HELPERS_CALL_H

/* The call of a command of fragctl, with its words and options, and what all commands need to
 * answer: exit statuses and JSON.  The table of commands is in fragctl.c.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FRAGCTL_FAILURE = 1,
	FRAGCTL_USAGE = 2,
	FRAGCTL_FOUND = 3 /* diff: the states differ; doctor: something is to be mended */
};

struct call {
	const char *name; /* of the command */
	char **words;     /* its arguments; NULL ends them */
	char **program;   /* the words behind "--"; NULL: there was no "--" */
	char given[32];   /* letters of the options; '-': there was a "--" */
	unsigned seconds; /* -t; 0: not given */
	unsigned count;   /* -n; 0: not given */
	unsigned rank;    /* -R */
	/* -S, -W, -P, -Q, -E, -Z, -k; 0: not given */
	unsigned stage, world, tp, sp, ep, hpz, states;
	const char *offload;            /* -L; NULL: not given */
	const char *job, *output, *svg; /* -j, -o, -s; NULL: not given */
};

/* Returns true if the option with that letter was given. */
bool call_has(const struct call *call, char letter);

/* Prints "fragctl: " and a line to standard error; returns FRAGCTL_FAILURE. */
int call_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints as call_fail; returns FRAGCTL_USAGE: words, options or their values are wrong. */
int call_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns the object that begins all JSON output: the command, and versions of its members. */
json_t *call_output_version(const struct call *call);
/* Prints root, and releases it; NULL is an error.  Returns the exit status. */
int call_print_json(json_t *root);
/* Prints as call_print_json an object that has the output's version and, under `name`, value.
 */
int call_print_object(const struct call *call, const char *name, json_t *value);

#endif
