/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* fragctl: the command line, and the table of commands, from which --help and completion come,
 * and against which the manual page is checked.
 */

#include "engine/base/base.h"
#include "engine/frag.h"
#include "mount-helpers/call.h"
#include "mount-helpers/commands.h"
#include "mount-helpers/listing.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { SECONDS_MAX = 86400, COUNT_MAX = 1000000, STATES_MAX = 16 };

/* The kinds of a command's words, for completion. */
#define MOUNTS "mounts"
#define JOBS "jobs" /* mounts and jobs */
#define PARAMS "params"
#define FILES "files"
#define FOLDERS "folders"

static const struct command {
	const char *name;
	const char *words; /* as --help shows them */
	int least, most;   /* how many words */
	const char *kind;
	const char
		*options; /* ids of rows in the table below; '-': a program may follow "--" */
	const struct listing_column *columns; /* of the command's table; NULL: it prints none */
	const char *help;
	/* the meaning of FRAGCTL_FOUND; NULL: the command never exits with it */
	const char *found;
	int (*run)(const struct call *call);
} commands[] = {
	{ "status", "[MOUNTPOINT | HOST:PORT]...", 0, INT_MAX, JOBS, "JHpoj", status_columns,
	  "show ranks, step and bytes of mounted jobs, and what this machine offers", NULL,
	  status_run },
	{ "jobs", "", 0, 0, NULL, "JHpo", jobs_columns,
	  "list the jobs of this user on this host", NULL, jobs_run },
	{ "ls", "[PATTERN]...", 0, INT_MAX, PARAMS, "JHpoj", ls_columns,
	  "list parameters: shapes, states, and the ranks that hold them", NULL, ls_run },
	{ "stat", "PATTERN...", 1, INT_MAX, PARAMS, "Jpj", NULL,
	  "show all that is known of parameters", NULL, stat_run },
	{ "stats", "[PATTERN[/STATE]]...", 0, INT_MAX, PARAMS, "JHpoj", stats_columns,
	  "show statistics of states: NaNs and where they are, norms, extremes", NULL,
	  stats_run },
	{ "get", "PARAM[/STATE][SLICE]", 1, 1, PARAMS, "JHjO", NULL,
	  "print elements, or write them to a file", NULL, get_run },
	{ "set", "PARAM/STATE[SLICE] VALUE", 2, 3, PARAMS, "Jj", NULL,
	  "change elements to VALUE: a number, zero, = FILE, or *=, /=, +=, -= and a number",
	  NULL, set_run },
	{ "place", "[PATTERN/STATE TIER]", 0, 2, PARAMS, "JHpoj", place_columns,
	  "move states of a job to host, swap or device, or show how far that is", NULL,
	  place_run },
	{ "diff", "A B [PATTERN]...", 2, INT_MAX, JOBS, "JHpeon", diff_columns,
	  "compare the parameters of two mounts, jobs or checkpoints", "they differ",
	  diff_run },
	{ "watch", "[EVENT]...", 0, INT_MAX, NULL, "Jnj", NULL,
	  "print what happens in the job: steps, edits, freezes, ranks that are lost", NULL,
	  watch_run },
	{ "break", "[CONDITION | off]", 0, 1, NULL, "JTwj", NULL,
	  "freeze the job where CONDITION holds: nan(grad) > 0, norm(grad, layers.*) > 1e3",
	  NULL, break_run },
	{ "map", "[PATTERN]...", 0, INT_MAX, PARAMS, "JHapojs", map_columns,
	  "draw which rank and tier holds which part of each parameter", NULL, map_run },
	{ "top", "", 0, 0, NULL, "Jacjt", NULL,
	  "watch ranks, steps, tiers and norms of groups in the terminal, until q", NULL,
	  top_run },
	{ "doctor", "", 0, 0, NULL, "JHo", doctor_columns,
	  "look at what this machine offers to fragfs, and say how to mend it",
	  "something is bad", doctor_run },
	{ "bench", "[PATTERN]...", 0, INT_MAX, PARAMS, "JHpoj", bench_columns,
	  "read for some seconds from the mount, a plain file and memory", NULL, bench_run },
	{ "key", "FILE", 1, 1, FILES, "Jr", NULL,
	  "make a new key file for a job (FRAG_KEY_FILE)", NULL, keys_run },
	{ "freeze", "[MOUNTPOINT]", 0, 1, MOUNTS, "JjT-", NULL,
	  "stop all ranks at one boundary: while COMMAND runs, or until thaw", NULL,
	  freeze_run },
	{ "thaw", "[MOUNTPOINT]", 0, 1, MOUNTS, "Jj", NULL, "let frozen ranks go on", NULL,
	  freeze_run_thaw },
	{ "overlay", "DIR", 1, 1, FOLDERS, "J", NULL,
	  "show the edits that a folder holds for a checkpoint (fragfs -o overlay=DIR)", NULL,
	  overlays_run },
	{ "commit", "DIR [CHECKPOINT]", 1, 2, FOLDERS, "J", NULL,
	  "write the edits of a folder into the checkpoint, all or nothing", NULL,
	  overlays_run_commit },
	{ "discard", "DIR", 1, 1, FOLDERS, "J", NULL,
	  "delete the edits that a folder holds for a checkpoint", NULL, overlays_run_discard },
	{ "plan", "MODEL", 1, 1, FILES, "JHpxFgoSWPQEZkL", plan_columns,
	  "tell what each rank of a job would need of a model: device, host and NVMe", NULL,
	  plan_run },
	{ "comms", "[MOUNTPOINT]", 0, 1, MOUNTS, "JHpojR", comms_columns,
	  "show what operations on ranks take, and which ranks are behind (FRAG_COMMS=1)", NULL,
	  comms_run },
	{ "numa", "[CORES]", 0, 1, NULL, "JHoNB", numa_columns,
	  "divide this host's cores among its ranks, or print a rank's line for a launcher",
	  NULL, numa_run },
	{ "arena", "[MOUNTPOINT]", 0, 1, MOUNTS, "JajR", NULL,
	  "draw the arena, memory of low-precision parameters, of each rank that has one", NULL,
	  arenas_run },
};

/* The options.  An id is the option's letter, or another character if some commands use the
 * letter for another option.
 */
static const struct option_row {
	char id, letter;
	const char *name;
	const char *value; /* NULL: the option takes no value */
	const char *help;
} rows[] = {
	{ 'J', 'J', "json", NULL, "print one JSON object" },
	{ 'H', 'H', "no-header", NULL, "print no heading, and tabs between fields" },
	{ 'p', 'p', "exact", NULL, "print numbers as they are, not rounded" },
	{ 'o', 'o', "columns", "COLUMNS", "show these columns, with commas between them" },
	{ 'j', 'j', "job", "JOB",
	  "ask this mount, job (HOST:PORT, or its name) or checkpoint" },
	{ 's', 's', "svg", "FILE", "write the drawing to a file" },
	{ 'n', 'n', "count", "COUNT", "print so many rows or events" },
	{ 'e', 'e', "every-state", NULL, "compare every state that both have" },
	{ 'O', 'o', "output", "FILE",
	  "write elements to a file (-: standard output), raw or, if *.npy, as numpy's" },
	{ 'r', 'r', "readers", NULL,
	  "print the key for readers of the job with this key file" },
	{ 'R', 'R', "rank", "RANK", "show only this rank" },
	{ 'a', 'a', "ascii", NULL, "draw with ASCII characters only" },
	{ 'T', 't', "time", "SECONDS",
	  "seconds after which a freeze ends by itself (60; that of break: 3600)" },
	{ 'w', 'w', "wait", NULL, "wait until the condition holds, and print where" },
	{ 't', 't', "every", "SECONDS", "seconds from one look to the next (1)" },
	{ 'c', 'c', "once", NULL, "print one look, and end" },
	{ 'N', 'n', "procs", "RANKS", "this host has so many ranks (LOCAL_WORLD_SIZE, or 1)" },
	{ 'B', 'R', "local-rank", "RANK", "print the line of this rank of the host alone" },
	{ 'S', 'S', "stage", "STAGE", "the stage of ZeRO (3)" },
	{ 'W', 'W', "world", "RANKS", "the number of ranks (those that the model has)" },
	{ 'P', 'P', "tp", "RANKS", "so many ranks have the parts of each tensor (1)" },
	{ 'Q', 'Q', "sp", "RANKS", "so many ranks have the parts of each sample (1)" },
	{ 'E', 'E', "ep", "RANKS", "so many ranks divide the experts (1)" },
	{ 'F', 'F', "data-first", NULL,
	  "ranks with the same experts have consecutive numbers" },
	{ 'g', 'g', "groups", NULL, "print the groups of ranks, too" },
	{ 'Z', 'Z', "hpz", "RANKS", "so many ranks share a second copy of parameters (1)" },
	{ 'k', 'k', "states", "COUNT",
	  "states of the optimizer beside the master (2: Adam's)" },
	{ 'L', 'L', "offload", "cpu", "masters, gradients and states are in host memory" },
	{ 'x', 'x', "swap", NULL,
	  "masters, gradients and states are on NVMe, with buffers in host memory" },
	{ 'h', 'h', "help", NULL, "this text, or that of a command" },
	{ 'V', 'V', "version", NULL, "the version" },
};

/* ---- help ---- */

static const struct option_row *row_of(char id)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].id == id)
			return &rows[i];
	return NULL;
}

/* Prints a command's usage: "fragctl arena [-Ja] [-R RANK] [MOUNTPOINT]". */
static void print_usage(const struct command *c, FILE *to, const char *end)
{
	const char *separator = " [-";

	fprintf(to, "fragctl %s", c->name);
	for (const char *id = c->options; *id; id++) {
		if (*id == '-' || row_of(*id)->value)
			continue;
		fprintf(to, "%s%c", separator, row_of(*id)->letter);
		separator = "";
	}
	fputs(*separator ? "" : "]", to);
	for (const char *id = c->options; *id; id++)
		if (*id != '-' && row_of(*id)->value)
			fprintf(to, " [-%c %s]", row_of(*id)->letter, row_of(*id)->value);
	fprintf(to, *c->words ? " %s" : "%s", c->words);
	fputs(strchr(c->options, '-') ? " [-- COMMAND [ARGUMENT ...]]" : "", to);
	fputs(end, to);
}

static void print_option(const struct option_row *row)
{
	char text[64];

	snprintf(text, sizeof(text), "-%c, --%s%s%s", row->letter, row->name,
		 row->value ? " " : "", row->value ? row->value : "");
	printf("  %-22s  %s\n", text, row->help);
}

static int help(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		fputs(i ? "       " : "usage: ", stdout);
		print_usage(&commands[i], stdout, "\n");
	}
	putchar('\n');
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		printf("  %-8s %s\n", commands[i].name, commands[i].help);
	putchar('\n');
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		print_option(&rows[i]);
	puts("\nexit status: 0 done, 1 failed, 2 wrong usage; fragctl COMMAND --help says "
	     "more");
	return fflush(stdout) != 0;
}

static int help_of(const struct command *c)
{
	fputs("usage: ", stdout);
	print_usage(c, stdout, "\n");
	printf("\n  %s\n\n", c->help);
	for (const char *id = c->options; *id; id++)
		if (*id != '-')
			print_option(row_of(*id));
	if (c->columns)
		fputs("\ncolumns:", stdout);
	for (const struct listing_column *column = c->columns; column && column->name; column++)
		printf(column->more ? " (%s)" : " %s", column->name);
	puts(c->columns ? "; in brackets: only by -o" : "");
	printf("exit status: 0 done, 1 failed, 2 wrong usage%s%s\n", c->found ? ", 3 " : "",
	       c->found ? c->found : "");
	return fflush(stdout) != 0;
}

/* Prints the table of commands, with tabs between fields: for completion, and to check the
 * manual page.
 */
static int print_commands(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		const struct command *c = &commands[i];

		printf("command\t%s\t%s\t%s\n", c->name, c->kind ? c->kind : "-", c->help);
		for (const char *id = c->options; *id; id++) {
			const struct option_row *row = *id == '-' ? NULL : row_of(*id);

			if (row)
				printf("option\t%s\t-%c\t--%s\t%s\t%s\n", c->name, row->letter,
				       row->name, row->value ? row->value : "-", row->help);
		}
		for (const struct listing_column *at = c->columns; at && at->name; at++)
			printf("column\t%s\t%s\n", c->name, at->name);
		if (c->found)
			printf("found\t%s\t%d\n", c->name, FRAGCTL_FOUND);
	}
	return fflush(stdout) != 0;
}

static int usage(void)
{
	fputs("fragctl: expected: fragctl ", stderr);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(stderr, i ? "|%s" : "%s", commands[i].name);
	fputs(" (fragctl --help)\n", stderr);
	return FRAGCTL_USAGE;
}

static int usage_of(const struct command *c)
{
	fputs("fragctl: expected: ", stderr);
	print_usage(c, stderr, " (fragctl --help)\n");
	return FRAGCTL_USAGE;
}

/* ---- the command line ---- */

static bool takes(const struct command *c, char letter)
{
	for (const char *id = c->options; *id; id++)
		if (*id == letter || (*id != '-' && row_of(*id)->letter == letter))
			return true;
	return false;
}

static bool is_called_right(const struct command *c, int nwords, const struct call *call)
{
	for (const char *letter = call->given; *letter; letter++)
		if (!takes(c, *letter))
			return false;
	return nwords >= c->least && nwords <= c->most && (!call->program || *call->program);
}

/* Returns rc, or an error if the output could not be written, as on a full disk. */
static int finish_output(int rc)
{
	if ((fflush(stdout) || ferror(stdout)) && rc != FRAGCTL_USAGE)
		return call_fail("standard output: %s", strerror(errno));
	return rc;
}

static int run(int nwords, char **words, struct call *call, bool help_wanted)
{
	const struct command *c = NULL;

	for (size_t i = 0; nwords && !c && i < ARRAY_SIZE(commands); i++)
		c = strcmp(words[0], commands[i].name) ? NULL : &commands[i];
	if (help_wanted && (c || !nwords))
		return c ? help_of(c) : help();
	if (!c)
		return usage();
	/* A command that runs no program takes the arguments behind "--" as more words.  The
	 * array of words has room for all arguments.
	 */
	if (call->program && *call->program && !takes(c, '-')) {
		for (char **word = call->program; *word; word++)
			words[nwords++] = *word;
		words[nwords] = NULL;
		call->program = NULL;
		/* removes the "-" of split() */
		memmove(call->given, call->given + 1, strlen(call->given));
	}
	if (!is_called_right(c, nwords - 1, call))
		return usage_of(c);
	call->name = c->name;
	call->words = words + 1;
	return finish_output(c->run(call));
}

/* Cuts the arguments at the first "--", behind which are a program and its arguments; returns
 * how many are before it.
 */
static int split(int argc, char **argv, struct call *call)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--") != 0)
			continue;
		argv[i] = NULL;
		strcpy(call->given, "-");
		call->program = argv + i + 1;
		return i;
	}
	return argc;
}

static bool parse_number(const char *text, unsigned least, unsigned most, unsigned *number)
{
	char rest;

	return *text >= '0' && *text <= '9' && strlen(text) < 8 &&
	       sscanf(text, "%u%c", number, &rest) == 1 && *number >= least && *number <= most;
}

static const struct number {
	char letter;
	size_t field; /* its offset in struct call */
	unsigned least, most;
	const char *what;
} numbers[] = {
#define NUMBER(letter, field, ...)                                                             \
	{                                                                                      \
		letter, offsetof(struct call, field), __VA_ARGS__                              \
	}
	NUMBER('t', seconds, 1, SECONDS_MAX, "seconds, "),
	NUMBER('n', count, 1, COUNT_MAX, ""),
	NUMBER('S', stage, 0, 3, "a stage of ZeRO, "),
	NUMBER('W', world, 1, FRAG_WORLD_MAX, ""),
	NUMBER('P', tp, 1, FRAG_WORLD_MAX, ""),
	NUMBER('Q', sp, 1, FRAG_WORLD_MAX, ""),
	NUMBER('E', ep, 1, FRAG_WORLD_MAX, ""),
	NUMBER('Z', hpz, 1, FRAG_WORLD_MAX, ""),
	NUMBER('k', states, 0, STATES_MAX, ""),
	NUMBER('R', rank, 0, FRAG_WORLD_MAX - 1, "a rank, "),
#undef NUMBER
};

/* Takes the value of an option.  -1: the value is wrong; a line was printed. */
static int take_value(struct call *call, char letter, const char *value)
{
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		const struct number *n = &numbers[i];

		if (n->letter != letter)
			continue;
		if (parse_number(value, n->least, n->most,
				 (unsigned *)((char *)call + n->field)))
			return 0;
		fprintf(stderr, "fragctl: -%c %s: %sa whole number from %u to %u\n", letter,
			value, n->what, n->least, n->most);
		return -1;
	}
	switch (letter) {
	case 'L':
		call->offload = value;
		if (!strcmp(value, "cpu"))
			return 0;
		fprintf(stderr,
			"fragctl: -L %s: there is only cpu, the host's memory; NVMe is "
			"--swap\n",
			value);
		return -1;
	case 'j':
		call->job = value;
		return 0;
	case 'o':
		call->output = value;
		return 0;
	case 's':
		call->svg = value;
		return 0;
	default:
		return 0;
	}
}

/* Prints what is wrong with the option of a word: c is what getopt says of it. */
static void tell_option(struct call *call, int c, const char *word)
{
	bool is_long = !strncmp(word, "--", 2);

	if (c == ':') {
		if (!take_value(call, (char)optopt, ""))
			fprintf(stderr, "fragctl: -%c needs a value (fragctl --help)\n",
				optopt);
	} else if (is_long && optopt) {
		fprintf(stderr, "fragctl: %s: it takes no value (fragctl --help)\n", word);
	} else if (is_long) {
		fprintf(stderr, "fragctl: %s: unknown option (fragctl --help)\n", word);
	} else {
		fprintf(stderr, "fragctl: -%c: unknown option (fragctl --help)\n", optopt);
	}
}

/* Takes an option.  -1: the option is wrong; a line was printed. */
static int take_option(struct call *call, int letter, const char *value)
{
	char one[2] = { (char)letter };

	if (take_value(call, (char)letter, value))
		return -1;
	if (!call_has(call, (char)letter))
		strcat(call->given, one);
	return 0;
}

/* Makes the arguments of getopt_long from the table of options. */
static void make_options(struct option options[], char *letters)
{
	*letters++ = '-'; /* makes getopt return words in their order, as option 1 */
	*letters++ = ':'; /* and ':' for an option without its value */
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		options[i] = (struct option){ rows[i].name, rows[i].value != NULL, NULL,
					      rows[i].letter };
		*letters++ = rows[i].letter;
		if (rows[i].value)
			*letters++ = ':';
	}
	*letters = '\0';
}

/* Returns true if an argument that getopt would take for options is a number, or begins with
 * "-=".
 */
static bool is_negative(const char *word)
{
	return word && word[0] == '-' &&
	       ((word[1] >= '0' && word[1] <= '9') || word[1] == '.' || word[1] == '=' ||
		!strcmp(word, "-inf") || !strcmp(word, "-nan"));
}

int main(int argc, char **argv)
{
	struct option options[ARRAY_SIZE(rows) + 1] = { 0 };
	struct call call = { 0 };
	char letters[2 * ARRAY_SIZE(rows) + 3];
	bool help_wanted = false;
	CLEANUP(free) char **words = NULL;
	int c, at, nwords = 0;

	if (argc == 2 && !strcmp(argv[1], "--commands"))
		return print_commands();
	words = calloc((size_t)argc + 1, sizeof(*words));
	if (!words)
		return FRAGCTL_FAILURE;
	make_options(options, letters);
	opterr = 0; /* getopt's lines do not say what helps */
	argc = split(argc, argv, &call);
	for (;;) {
		if (optind < argc && is_negative(argv[optind])) {
			words[nwords++] = argv[optind++];
			continue;
		}
		at = optind; /* getopt stays at a word until its last letter */
		c = getopt_long(argc, argv, letters, options, NULL);
		if (c == -1)
			break;
		if (c == 'V')
			return printf("fragctl %s\n", PACKAGE_VERSION) < 0 || finish_output(0);
		if (c == 1)
			words[nwords++] = optarg;
		else if (c == 'h')
			help_wanted = true;
		else if (c == '?' || c == ':')
			return tell_option(&call, c, argv[at]), FRAGCTL_USAGE;
		else if (take_option(&call, c, optarg))
			return FRAGCTL_USAGE;
	}
	return run(nwords, words, &call, help_wanted);
}
