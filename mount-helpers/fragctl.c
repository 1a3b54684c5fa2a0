/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* fragctl: the commands for mounts, jobs, keys, freezes and overlays. */

#include "engine/base/base.h"
#include "engine/frag.h"
#include "engine/launch/jobfile.h"
#include "mount-helpers/fragctl.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <mntent.h>
#include <string.h>
#include <sys/stat.h>

enum { FRAGCTL_FAILURE = 1, FRAGCTL_USAGE = 2 };
enum { FREEZE_SECONDS = 60, FREEZE_SECONDS_MAX = 86400 };
enum { FRAGCTL_JSON_MAJOR = 1, FRAGCTL_JSON_MINOR = 0 };

static const char help[] =
	"usage: fragctl status [--json] [MOUNTPOINT | HOST:PORT]...\n"
	"       fragctl jobs [--json]\n"
	"       fragctl key [--readers] FILE\n"
	"       fragctl freeze [-t SECONDS] [MOUNTPOINT] [-- COMMAND [ARGUMENT]...]\n"
	"       fragctl thaw [MOUNTPOINT]\n"
	"       fragctl overlay [--json] DIR\n"
	"       fragctl commit DIR [CHECKPOINT]\n"
	"       fragctl discard DIR\n"
	"       fragctl arena [--json] [--ascii] [-R RANK] [MOUNTPOINT]\n"
	"\n"
	"  status   show ranks, step, generation and bytes of mounted jobs, and what this\n"
	"           machine offers (without an argument: of all mounts of fragfs)\n"
	"  jobs     list the jobs of this user on this host\n"
	"  key      make a new key file for a job (FRAG_KEY_FILE)\n"
	"  freeze   stop all ranks at one boundary: while COMMAND runs, or until thaw\n"
	"  thaw     let frozen ranks go on\n"
	"  overlay  show the edits that a folder holds for a checkpoint (fragfs -o "
	"overlay=DIR)\n"
	"  commit   write these edits into the checkpoint, all or nothing\n"
	"  discard  delete these edits\n"
	"  arena    draw the arena, memory of low-precision parameters, of each rank that has "
	"one\n"
	"\n"
	"  -j, --json     print one JSON object\n"
	"  -r, --readers  print the key for readers of the job that has this key file\n"
	"  -R, --rank     show only this rank\n"
	"  -a, --ascii    draw with ASCII characters only\n"
	"  -t, --time     seconds after which a freeze ends by itself (60)\n"
	"  -h, --help     this text\n"
	"  -V, --version  the version\n";

struct flags {
	char given[16]; /* letters of options; '-': a COMMAND */
	unsigned seconds;
	int64_t rank; /* -1: all */
	char **command;
};

static bool has(const struct flags *flags, char letter)
{
	return strchr(flags->given, letter) != NULL;
}

static json_t *output_version(const char *command)
{
	return json_pack("{s:s s:i s:i}", "command", command, "major", FRAGCTL_JSON_MAJOR,
			 "minor", FRAGCTL_JSON_MINOR);
}

/* Prints root, which it takes.  NULL: there was no memory for it. */
static int print_json(json_t *root)
{
	if (!root || json_dumpf(root, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER)) {
		json_decref(root);
		fprintf(stderr, "fragctl: %s\n", strerror(ENOMEM));
		return FRAGCTL_FAILURE;
	}
	putchar('\n');
	json_decref(root);
	return 0;
}

/* Prints the object of a command that shows one thing, `value`, which it takes. */
static int print_object(const char *command, const char *name, json_t *value)
{
	return print_json(
		json_pack("{s:o s:o}", "output_version", output_version(command), name, value));
}

/* ---- status ---- */

/* Counts what was shown, and collects it for JSON; mounts NULL: the output is text. */
struct report {
	json_t *mounts;
	int shown;
	int failed;
};

static void show(struct report *report, struct status *s)
{
	if (report->mounts)
		json_array_append_new(report->mounts, status_json(s));
	else
		status_print(s, stdout);
	report->shown++;
	status_fini(s);
}

static void fail(struct report *report, const char *why)
{
	fprintf(stderr, "fragctl: %s\n", why);
	report->failed++;
}

static void show_checkpoint(struct report *report, const char *mountpoint)
{
	json_t *object = NULL;
	char why[512];
	int rc;

	if (report->mounts) {
		object = checkpoint_status_json(mountpoint, why, sizeof(why));
		rc = json_array_append_new(report->mounts, object);
	} else {
		rc = checkpoint_status_print(mountpoint, stdout, why, sizeof(why));
	}
	if (rc)
		fail(report, why);
	else
		report->shown++;
}

static void show_mount(struct report *report, const char *mountpoint, const char *source)
{
	struct status s;
	char why[512];

	if (checkpoint_status_is(mountpoint))
		show_checkpoint(report, mountpoint);
	else if (status_of_mount(&s, mountpoint, source, why, sizeof(why)))
		fail(report, why);
	else
		show(report, &s);
}

static int read_mounts(struct mount_entry **mounts)
{
	FILE *table = setmntent("/proc/self/mounts", "re");
	int n = table ? mounts_read(table, mounts) : -errno;

	if (table)
		endmntent(table);
	return n;
}

static const char *source_of(const char *path, const struct mount_entry *mounts, int n)
{
	char real[PATH_MAX];

	if (!realpath(path, real))
		return path;
	for (int i = n; i-- > 0;) {
		if (!strcmp(mounts[i].mountpoint, real))
			return mounts[i].source;
	}
	return path;
}

static void show_named(struct report *report, const char *name,
		       const struct mount_entry *mounts, int n)
{
	struct status s;
	struct stat st;
	char why[512];

	if (!strchr(name, '/') && strchr(name, ':') && stat(name, &st)) {
		if (status_of_job(&s, name, why, sizeof(why)))
			fail(report, why);
		else
			show(report, &s);
	} else if (stat(name, &st)) {
		snprintf(why, sizeof(why), "%s: %s", name, strerror(errno));
		fail(report, why);
	} else {
		show_mount(report, name, source_of(name, mounts, n));
	}
}

static json_t *machine_json(const struct machine *m)
{
	return json_pack("{s:s s:s s:s s:b}", "transparent_hugepage", m->huge_pages,
			 "shmem_enabled", m->shared_huge_pages, "ptrace_scope", m->yama,
			 "dev_fuse", m->fuse);
}

static void print_machine(const struct machine *m)
{
	printf("this machine: huge pages %s, shared huge pages %s, ptrace_scope %s, /dev/fuse "
	       "%s\n",
	       m->huge_pages, m->shared_huge_pages, m->yama,
	       m->fuse ? "usable" : "not for this user");
}

static int finish_status(struct report *report)
{
	struct machine machine;

	machine_read(&machine);
	if (!report->mounts) {
		print_machine(&machine);
		return report->failed ? FRAGCTL_FAILURE : 0;
	}
	if (print_json(json_pack("{s:o s:o s:o}", "output_version",
				 output_version("fragctl status"), "machine",
				 machine_json(&machine), "mounts", report->mounts)))
		return FRAGCTL_FAILURE;
	return report->failed ? FRAGCTL_FAILURE : 0;
}

static int run_status(char **names, const struct flags *flags)
{
	struct report report = { .mounts = has(flags, 'j') ? json_array() : NULL };
	struct mount_entry *mounts = NULL;
	int n = read_mounts(&mounts);

	if (n < 0) {
		fprintf(stderr, "fragctl: /proc/self/mounts: %s\n", strerror(-n));
		return FRAGCTL_FAILURE;
	}
	for (int i = 0; !*names && i < n; i++)
		show_mount(&report, mounts[i].mountpoint, mounts[i].source);
	if (!*names && !n && !report.mounts)
		puts("nothing is mounted by fragfs here (fragctl jobs: what can be)");
	for (; *names; names++)
		show_named(&report, *names, mounts, n);
	mounts_free(mounts, n);
	return finish_status(&report);
}

/* ---- jobs ---- */

static void print_job(void *arg, const struct jobfile *j)
{
	printf("%-24s %-24s %6" PRIu32 " %8d  %s\n", j->job, j->address, j->world, (int)j->pid,
	       j->key_file[0] ? j->key_file : "(plain)");
}

static void append_job(void *arg, const struct jobfile *j)
{
	json_array_append_new(arg, json_pack("{s:s s:s s:I s:I s:s}", "job", j->job, "address",
					     j->address, "world", (json_int_t)j->world, "pid",
					     (json_int_t)j->pid, "key_file", j->key_file));
}

static int run_jobs(char **words, const struct flags *flags)
{
	json_t *list;

	jobfile_sweep();
	if (!has(flags, 'j')) {
		printf("%-24s %-24s %6s %8s  %s\n", "JOB", "ADDRESS", "WORLD", "PID", "KEY");
		jobfile_list(print_job, NULL);
		return 0;
	}
	list = json_array();
	jobfile_list(append_job, list);
	return print_object("fragctl jobs", "jobs", list);
}

/* ---- key ---- */

static int run_key(char **words, const struct flags *flags)
{
	char why[PATH_MAX + 100];
	int rc = has(flags, 'r') ? keys_print_readers(*words, why, sizeof(why))
				 : keys_make(*words, why, sizeof(why));

	if (rc)
		fprintf(stderr, "fragctl: %s\n", why);
	return rc ? FRAGCTL_FAILURE : 0;
}

/* ---- freeze, thaw ---- */

static void ask_for_one(const struct mount_entry *mounts, int n)
{
	if (!n)
		fputs("fragctl: nothing is mounted by fragfs here", stderr);
	for (int i = 0; i < n; i++)
		fprintf(stderr, i ? ", %s" : "fragctl: name one of these mounts: %s",
			mounts[i].mountpoint);
	fputc('\n', stderr);
}

/* Finds the mount that is named, else the only one there is. */
static int find_mount(const char *named, char *out, size_t size)
{
	struct mount_entry *mounts = NULL;
	int n = named ? 1 : read_mounts(&mounts);

	if (named || n == 1)
		snprintf(out, size, "%s", named ? named : mounts[0].mountpoint);
	else
		ask_for_one(mounts, n);
	if (mounts)
		mounts_free(mounts, n);
	return n == 1 ? 0 : -ENOENT;
}

/* ---- overlays ---- */

static int run_overlay(char **words, const struct flags *flags)
{
	char why[PATH_MAX + 100];
	bool json = has(flags, 'j');
	json_t *object = json ? overlays_json(*words, why, sizeof(why)) : NULL;

	if (object)
		return print_object("fragctl overlay", "overlay", object);
	if (!json && !overlays_print(*words, stdout, why, sizeof(why)))
		return 0;
	fprintf(stderr, "fragctl: %s\n", why);
	return FRAGCTL_FAILURE;
}

static int end_overlay(const char *path, bool commit, const char *checkpoint)
{
	char why[PATH_MAX + 100];
	int rc = commit ? overlays_commit(path, checkpoint, stdout, why, sizeof(why))
			: overlays_discard(path, why, sizeof(why));

	if (rc)
		fprintf(stderr, "fragctl: %s\n", why);
	return rc ? FRAGCTL_FAILURE : 0;
}

/* ---- arena ---- */

static int arena(const char *mountpoint, int64_t rank, bool ascii, bool json)
{
	char why[PATH_MAX + 200];
	json_t *list = json ? arenas_json(mountpoint, rank, why, sizeof(why)) : NULL;

	if (list)
		return print_object("fragctl arena", "ranks", list);
	if (!json && !arenas_print(mountpoint, rank, ascii, stdout, why, sizeof(why)))
		return 0;
	fprintf(stderr, "fragctl: %s\n", why);
	return FRAGCTL_FAILURE;
}

/* ---- the command line ---- */

static int run_freeze(char **words, const struct flags *flags)
{
	char mountpoint[PATH_MAX];

	if (find_mount(words[0], mountpoint, sizeof(mountpoint)))
		return FRAGCTL_FAILURE;
	return freeze(mountpoint, flags->seconds, flags->command);
}

static int run_thaw(char **words, const struct flags *flags)
{
	char mountpoint[PATH_MAX];

	if (find_mount(words[0], mountpoint, sizeof(mountpoint)))
		return FRAGCTL_FAILURE;
	return thaw(mountpoint);
}

static int run_commit(char **words, const struct flags *flags)
{
	return end_overlay(words[0], true, words[1]);
}

static int run_discard(char **words, const struct flags *flags)
{
	return end_overlay(words[0], false, NULL);
}

static int run_arena(char **words, const struct flags *flags)
{
	char mountpoint[PATH_MAX];

	if (find_mount(words[0], mountpoint, sizeof(mountpoint)))
		return FRAGCTL_FAILURE;
	return arena(mountpoint, flags->rank, has(flags, 'a'), has(flags, 'j'));
}

static const struct command {
	const char *name, *options;
	int least, most; /* words */
	int (*run)(char **words, const struct flags *flags);
} commands[] = {
	{ "status", "j", 0, INT_MAX, run_status },
	{ "jobs", "j", 0, 0, run_jobs },
	{ "key", "r", 1, 1, run_key },
	{ "freeze", "t-", 0, 1, run_freeze },
	{ "thaw", "", 0, 1, run_thaw },
	{ "overlay", "j", 1, 1, run_overlay },
	{ "commit", "", 1, 2, run_commit },
	{ "discard", "", 1, 1, run_discard },
	{ "arena", "jaR", 0, 1, run_arena },
};

/* Prints the line of the help that says how a command is called. */
static int usage_of(const char *name)
{
	char start[64];
	const char *line;

	snprintf(start, sizeof(start), " fragctl %s ", name);
	line = strstr(help, start);
	fprintf(stderr, "fragctl: expected:%.*s (fragctl --help)\n",
		line ? (int)strcspn(line, "\n") : 0, line ? line : "");
	return FRAGCTL_USAGE;
}

static int usage(void)
{
	fputs("fragctl: expected: fragctl "
	      "status|jobs|key|freeze|thaw|overlay|commit|discard|arena (fragctl --help)\n",
	      stderr);
	return FRAGCTL_USAGE;
}

static int run(int nwords, char **words, const struct flags *flags)
{
	for (size_t i = 0; nwords && i < ARRAY_SIZE(commands); i++) {
		const struct command *c = &commands[i];

		if (strcmp(words[0], c->name) != 0)
			continue;
		if (nwords - 1 < c->least || nwords - 1 > c->most ||
		    flags->given[strspn(flags->given, c->options)] ||
		    (flags->command && !*flags->command))
			return usage_of(c->name);
		return c->run(words + 1, flags);
	}
	return usage();
}

/* Cuts the arguments at the first "--", behind which is a COMMAND; returns how many are left.
 */
static int split(int argc, char **argv, struct flags *flags)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--") != 0)
			continue;
		argv[i] = NULL;
		strcpy(flags->given, "-");
		flags->command = argv + i + 1;
		return i;
	}
	return argc;
}

static bool parse_seconds(const char *text, unsigned *seconds)
{
	char rest;

	return *text >= '0' && *text <= '9' && sscanf(text, "%6u%c", seconds, &rest) == 1 &&
	       *seconds > 0 && *seconds <= FREEZE_SECONDS_MAX;
}

static bool parse_rank(const char *text, int64_t *rank)
{
	unsigned number;
	char rest;

	if (*text < '0' || *text > '9' || sscanf(text, "%5u%c", &number, &rest) != 1 ||
	    number >= FRAG_WORLD_MAX)
		return false;
	*rank = number;
	return true;
}

/* Takes the value of an option.  -1: it is wrong; a line was printed. */
static int take_value(struct flags *flags, int letter, const char *value)
{
	if (letter == 't' && !parse_seconds(value, &flags->seconds)) {
		fprintf(stderr, "fragctl: -t %s: seconds, a whole number from 1 to %d\n", value,
			FREEZE_SECONDS_MAX);
		return -1;
	}
	if (letter == 'R' && !parse_rank(value, &flags->rank)) {
		fprintf(stderr, "fragctl: -R %s: a rank, a whole number from 0 to %d\n", value,
			FRAG_WORLD_MAX - 1);
		return -1;
	}
	return 0;
}

/* Takes an option.  -1: it is wrong; a line was printed. */
static int take_option(struct flags *flags, int letter, const char *value)
{
	size_t n = strlen(flags->given);

	if (letter == '?') {
		/* getopt has printed what is wrong, but not which options there are. */
		if (!take_value(flags, optopt, ""))
			usage();
		return -1;
	}
	if (take_value(flags, letter, value))
		return -1;
	if (!has(flags, (char)letter))
		flags->given[n] = (char)letter;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },       { "readers", no_argument, NULL, 'r' },
		{ "time", required_argument, NULL, 't' }, { "help", no_argument, NULL, 'h' },
		{ "rank", required_argument, NULL, 'R' }, { "ascii", no_argument, NULL, 'a' },
		{ "version", no_argument, NULL, 'V' },    { 0 }
	};
	struct flags flags = { .seconds = FREEZE_SECONDS, .rank = -1 };
	int c;

	argc = split(argc, argv, &flags);
	while ((c = getopt_long(argc, argv, "jrR:at:hV", options, NULL)) != -1) {
		if (c == 'h')
			return fputs(help, stdout) < 0;
		if (c == 'V')
			return printf("fragctl %s\n", PACKAGE_VERSION) < 0;
		if (take_option(&flags, c, optarg))
			return FRAGCTL_USAGE;
	}
	return run(argc - optind, argv + optind, &flags);
}
