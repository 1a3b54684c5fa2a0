/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/options.h"

#include "engine/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

enum option_id {
	OPTION_RW,
	OPTION_RO,
	OPTION_LOCAL,
	OPTION_TIMEOUT,
	OPTION_STAGE_MEM,
	OPTION_KEY,
	OPTION_PLAIN,
	OPTION_TRANSPORT,
	OPTION_GATHER,
	OPTION_SOURCE,
	OPTION_NOREADAHEAD,
	OPTION_COHERENT,
	OPTION_OVERLAY,
	OPTION_ALLOW_OTHER,
	OPTION_FSNAME,
	OPTION_MAX_READ,
	OPTION_PASSED,
	OPTION_IGNORED,
};

enum option_use { FOR_BOTH, FOR_JOB, FOR_CHECKPOINT };

static const struct mount_option {
	const char *name;
	/* name of the value, or the values allowed; NULL: the option takes none */
	const char *value;
	const char *allowed; /* the values allowed, for errors, if `value` is only a name */
	enum option_id id;
	enum option_use use;
	const char *help;
} rows[] = {
	{ "ro", .id = OPTION_RO, .help = "refuse writes (the default)" },
	{ "rw", .id = OPTION_RW, .help = "let states and hyper-parameters be written" },
	{ "local", .id = OPTION_LOCAL, .use = FOR_JOB,
	  .help = "with rw: ranks/ too, where an edit changes one rank alone" },
	{ "timeout", "SECONDS", "seconds, 0.001 to 4294967", .id = OPTION_TIMEOUT,
	  .use = FOR_JOB, .help = "fail requests to a rank that is silent for so long (10)" },
	{ "stage_mem", "SIZE", "bytes, or with K, M, G or T, below 2^64",
	  .id = OPTION_STAGE_MEM,
	  .help = "bytes that may be written and not yet committed (1G)" },
	{ "key", "FILE", .id = OPTION_KEY, .use = FOR_JOB,
	  .help = "the job's key, if not the one it left for you" },
	{ "plain", .id = OPTION_PLAIN, .use = FOR_JOB, .help = "mount a job that has no key" },
	{ "transport", "auto|zmq", .id = OPTION_TRANSPORT, .use = FOR_JOB,
	  .help = "zmq: read by messages, never from memory of this host (auto)" },
	{ "gather", "auto|nccl|host", .id = OPTION_GATHER, .use = FOR_JOB,
	  .help = "read states on devices by NCCL, or through the host (auto)" },
	{ "source", "FORMAT", "auto|dcp|safetensors|universal|zero|torch", .id = OPTION_SOURCE,
	  .use = FOR_CHECKPOINT, .help = "format of the checkpoint SOURCE (auto)" },
	{ "coherent", "on|off", .id = OPTION_COHERENT, .use = FOR_CHECKPOINT,
	  .help = "edits of fp32 write a checkpoint's bf16 or fp16 too (on)" },
	{ "overlay", "DIR", .id = OPTION_OVERLAY, .use = FOR_CHECKPOINT,
	  .help = "rw, and keep edits of a checkpoint in DIR, not in its files" },
	{ "noreadahead", .id = OPTION_NOREADAHEAD, .use = FOR_JOB,
	  .help = "do not read ahead" },
	{ "allow_other", .id = OPTION_ALLOW_OTHER,
	  .help = "let other users in; permissions are checked" },
	{ "allow_root", .id = OPTION_PASSED, .help = "let root in" },
	{ "default_permissions", .id = OPTION_PASSED,
	  .help = "let the kernel check permissions" },
	{ "auto_unmount", .id = OPTION_PASSED, .help = "unmount even when fragfs is killed" },
	{ "fsname", "NAME", .id = OPTION_FSNAME,
	  .help = "first column of mount(8), if not SOURCE" },
	{ "max_read", "SIZE", "bytes, or with K, M or G, 4096 to 4294967295",
	  .id = OPTION_MAX_READ, .help = "largest read; at least 4K" },
	{ "context", "TEXT", .id = OPTION_PASSED, .help = "SELinux context" },
	{ "nosuid", .id = OPTION_PASSED, .help = "as mount(8), like the rest" },
	{ "suid", .id = OPTION_PASSED },
	{ "nodev", .id = OPTION_PASSED },
	{ "dev", .id = OPTION_PASSED },
	{ "noexec", .id = OPTION_PASSED },
	{ "exec", .id = OPTION_PASSED },
	{ "noatime", .id = OPTION_PASSED },
	{ "atime", .id = OPTION_PASSED },
	{ "nodiratime", .id = OPTION_IGNORED },
	{ "relatime", .id = OPTION_IGNORED },
	{ "sync", .id = OPTION_PASSED },
	{ "async", .id = OPTION_PASSED },
	{ "dirsync", .id = OPTION_PASSED },
	{ "defaults", .id = OPTION_IGNORED },
};
static_assert(ARRAY_SIZE(rows) <= OPTIONS_MAX, "rows of options.given");

static PRINTF(3, 4) int refuse(char *why, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, size, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static int replace(char **text, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*text);
	*text = copy;
	return 0;
}

/* Replaces a path by one that stays right after chdir(2). */
static int replace_path(char **text, const char *value)
{
	char *path = realpath(value, NULL);

	if (!path)
		return replace(text, value);
	free(*text);
	*text = path;
	return 0;
}

static int pass(struct options *o, const char *option)
{
	char *longer;

	if (asprintf(&longer, *o->passed ? "%s,%s" : "%s%s", o->passed, option) < 0)
		return -ENOMEM;
	free(o->passed);
	o->passed = longer;
	return 0;
}

/* Passes an option on, with its commas escaped: libfuse splits the list at commas, as
 * parse_list.
 */
static int pass_value(struct options *o, const char *option)
{
	CLEANUP(free) char *escaped = malloc(2 * strlen(option) + 1);
	char *to = escaped;

	for (; escaped && *option; option++) {
		if (*option == ',' || *option == '\\')
			*to++ = '\\';
		*to++ = *option;
	}
	if (escaped)
		*to = '\0';
	return escaped ? pass(o, escaped) : -ENOMEM;
}

static int parse_seconds(const char *text, unsigned *ms)
{
	char *end;
	double seconds = strtod(text, &end);

	/* the negated comparison refuses NaN too */
	if (end == text || *end || !(seconds >= 0.001) || seconds > UINT_MAX / 1000)
		return -EINVAL;
	*ms = (unsigned)(seconds * 1000);
	return 0;
}

static int parse_size(const char *text, uint64_t *size)
{
	static const char units[] = "KMGT";
	const char *unit;
	uint64_t factor = 1, n;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 10);
	unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	if (unit) {
		factor = (uint64_t)1 << 10 * (unit - units + 1);
		end++;
	}
	if (errno || *end || !u64_mul(n, factor, size))
		return -EINVAL;
	return 0;
}

/* Takes max_read, for which the kernel accepts no less than a page. */
static int parse_max_read(struct options *o, const char *text)
{
	char option[32];
	uint64_t size;

	if (parse_size(text, &size) || size < 4096 || size > UINT_MAX)
		return -EINVAL;
	o->max_read = (unsigned)size;
	snprintf(option, sizeof(option), "max_read=%u", o->max_read);
	return pass(o, option);
}

/* Returns true if the value is one of the choices, as "on|off"; without a '|' any value is. */
static bool is_one_of(const char *choices, const char *value)
{
	size_t length = strlen(value);

	if (!strchr(choices, '|'))
		return true;
	for (const char *at = choices; at; at = strchr(at, '|')) {
		at += *at == '|';
		if (strcspn(at, "|") == length && !strncmp(at, value, length))
			return true;
	}
	return false;
}

static int apply(struct options *o, const struct mount_option *row, const char *whole,
		 const char *value)
{
	switch (row->id) {
	case OPTION_RW:
	case OPTION_RO:
		o->read_only = row->id == OPTION_RO;
		o->writable = !o->read_only;
		return 0;
	case OPTION_LOCAL:
		o->local = true;
		return 0;
	case OPTION_TIMEOUT:
		return parse_seconds(value, &o->timeout_ms);
	case OPTION_STAGE_MEM:
		return parse_size(value, &o->stage_mem);
	case OPTION_KEY:
		return replace_path(&o->key, value);
	case OPTION_PLAIN:
		o->plain = true;
		return 0;
	case OPTION_TRANSPORT:
		return replace(&o->transport, value);
	case OPTION_GATHER:
		return replace(&o->gather, value);
	case OPTION_SOURCE:
		return replace(&o->format, value);
	case OPTION_COHERENT:
		o->coherent = !strcmp(value, "on");
		return 0;
	case OPTION_OVERLAY:
		o->writable = true;
		return replace_path(&o->overlay, value);
	case OPTION_NOREADAHEAD:
		o->readahead_off = true;
		return 0;
	case OPTION_ALLOW_OTHER:
		return pass(o, "allow_other,default_permissions");
	case OPTION_FSNAME:
		return replace(&o->fsname, value);
	case OPTION_MAX_READ:
		return parse_max_read(o, value);
	case OPTION_PASSED:
		return pass_value(o, whole);
	case OPTION_IGNORED:
		return 0;
	}
	return -EINVAL;
}

/* Takes an option; value NULL: there was no "=". */
static int take_option(struct options *o, const struct mount_option *row, const char *whole,
		       const char *value, char *why, size_t size)
{
	const char *name = row->name, *allowed = row->allowed ? row->allowed : row->value;
	int rc;

	if (!allowed && value)
		return refuse(why, size, "option %s takes no value", name);
	if (allowed && (!value || !*value))
		return refuse(why, size, "option %s needs a value: %s", name, allowed);
	if (allowed && !is_one_of(allowed, value))
		return refuse(why, size, "option %s: '%s' is none of %s", name, value, allowed);
	rc = apply(o, row, whole, value);
	if (rc)
		return refuse(why, size, "option %s will not do: %s", whole,
			      rc == -EINVAL ? allowed : strerror(-rc));
	return replace(&o->given[row - rows], whole);
}

/* Cuts the next option off *rest, up to a comma; a backslash makes the character behind it
 * plain text.  NULL: no option is left.
 */
static char *next_option(char **rest)
{
	char *option = *rest, *from = option, *to = option;

	if (!option)
		return NULL;
	for (; *from && *from != ','; from++) {
		if (*from == '\\' && from[1])
			from++;
		*to++ = *from;
	}
	*rest = *from ? from + 1 : NULL;
	*to = '\0';
	return option;
}

static int parse_list(struct options *o, const char *list, char *why, size_t size)
{
	char *copy = strdup(list), *rest = copy, *option;
	int rc = copy ? 0 : -ENOMEM;

	while (!rc && (option = next_option(&rest))) {
		size_t length = strcspn(option, "="), i = 0;

		if (!*option)
			continue;
		while (i < ARRAY_SIZE(rows) && (strlen(rows[i].name) != length ||
						strncmp(rows[i].name, option, length) != 0))
			i++;
		if (i == ARRAY_SIZE(rows))
			rc = refuse(why, size, "unknown option '%s' (see fragfs --help)",
				    option);
		else
			rc = take_option(o, &rows[i], option,
					 option[length] ? option + length + 1 : NULL, why,
					 size);
	}
	free(copy);
	return rc;
}

static int positional(struct options *o, const char *arg, char *why, size_t size)
{
	if (!o->source)
		o->source = arg;
	else if (!o->mountpoint)
		o->mountpoint = arg;
	else
		return refuse(why, size, "'%s': there is a source and a mountpoint already",
			      arg);
	return 0;
}

/* Takes the argument with number *i; -o takes the next one too. */
static int parse_arg(struct options *o, char **argv, int *i, char *why, size_t size)
{
	const char *arg = argv[*i];

	if (o->plain_words) {
		return positional(o, arg, why, size);
	} else if (!strcmp(arg, "--")) {
		o->plain_words = true;
	} else if (!strcmp(arg, "-h") || !strcmp(arg, "--help")) {
		o->help = true;
	} else if (!strcmp(arg, "-V") || !strcmp(arg, "--version")) {
		o->version = true;
	} else if (!strcmp(arg, "-f")) {
		o->foreground = true;
	} else if (!strcmp(arg, "-d")) {
		o->debug = o->foreground = true;
	} else if (!strncmp(arg, "-o", 2)) {
		const char *list = arg[2] ? arg + 2 : argv[++*i];

		if (!list)
			return refuse(why, size, "-o needs options");
		return parse_list(o, list, why, size);
	} else if (*arg == '-' && arg[1]) {
		return refuse(why, size, "unknown option '%s' (see fragfs --help)", arg);
	} else {
		return positional(o, arg, why, size);
	}
	return 0;
}

int options_parse(struct options *o, int argc, char **argv, char *why, size_t whysize)
{
	int rc = 0;

	*o = (struct options){ .timeout_ms = OPTIONS_TIMEOUT_MS,
			       .stage_mem = OPTIONS_STAGE_MEM,
			       .coherent = true };
	o->passed = strdup("");
	for (int i = 1; o->passed && i < argc && argv[i] && !rc; i++)
		rc = parse_arg(o, argv, &i, why, whysize);
	if (!rc && !o->passed)
		rc = refuse(why, whysize, "no memory");
	if (!rc && o->overlay && o->read_only)
		rc = refuse(why, whysize, "option overlay is for a mount that is not ro");
	if (!rc && o->local && !o->writable)
		rc = refuse(why, whysize, "option local is for a mount that is rw");
	if (!rc && !o->help && !o->version && !o->mountpoint)
		rc = refuse(why, whysize,
			    "a source and a mountpoint are needed: fragfs "
			    "HOST:PORT|JOB|CHECKPOINT MOUNTPOINT [-o OPTIONS]");
	return rc;
}

void options_without_effect(const struct options *o, bool live, char *names, size_t size)
{
	enum option_use other = live ? FOR_CHECKPOINT : FOR_JOB;
	size_t used = 0;

	*names = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(rows) && used < size; i++) {
		if (o->given[i] && rows[i].use == other)
			used += (size_t)snprintf(names + used, size - used, "%s%s",
						 used ? "," : "", rows[i].name);
	}
}

void options_fini(struct options *o)
{
	free(o->key);
	free(o->transport);
	free(o->gather);
	free(o->format);
	free(o->overlay);
	free(o->fsname);
	free(o->passed);
	for (size_t i = 0; i < OPTIONS_MAX; i++)
		free(o->given[i]);
}

static void put_escaped(FILE *out, const char *text)
{
	for (; *text; text++)
		fprintf(out, strchr(", \t\n\\", *text) ? "\\%03o" : "%c", *text);
}

char *options_text(const struct options *o)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputs(o->writable ? "rw" : "ro", out);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *path = rows[i].id == OPTION_KEY       ? o->key
				   : rows[i].id == OPTION_OVERLAY ? o->overlay
								  : NULL;

		if (!o->given[i] || rows[i].id == OPTION_RW || rows[i].id == OPTION_RO ||
		    rows[i].id == OPTION_IGNORED)
			continue;
		if (path)
			fprintf(out, ",%s=", rows[i].name);
		else
			fputc(',', out);
		put_escaped(out, path ? path : o->given[i]);
	}
	fputc('\n', out);
	return text_end(out, &text);
}

void options_help(FILE *out, const char *program)
{
	fprintf(out,
		"usage: %s SOURCE MOUNTPOINT [-f] [-d] [-o OPTION[,OPTION...]]\n"
		"\n"
		"Mounts the state of a training job, or a checkpoint.  SOURCE is "
		"HOST:PORT[,HOST:PORT...] of any of\n"
		"the job's ranks, the name of a job of this host, or the path of a folder or "
		"file.\n"
		"\n"
		"  -f             stay in the foreground\n"
		"  -d             as -f, and print every request\n"
		"  --             end of the options\n"
		"  -h, --help     this text\n"
		"  -V, --version  versions of fragfs and of libfuse\n"
		"\n",
		program);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char form[64];

		snprintf(form, sizeof(form), rows[i].value ? "%s=%s" : "%s%s", rows[i].name,
			 rows[i].value ? rows[i].value : "");
		fprintf(out, rows[i].help ? "  -o %-21s  %s\n" : "  -o %s%s\n", form,
			rows[i].help ? rows[i].help : "");
	}
}
