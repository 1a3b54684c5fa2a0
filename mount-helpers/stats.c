/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/base.h"
#include "mount-helpers/commands.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/params.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/target.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	COLUMN_NAME,
	COLUMN_STATE,
	COLUMN_COUNT,
	COLUMN_NAN,
	COLUMN_INF,
	COLUMN_ZERO,
	COLUMN_NORM,
	COLUMN_MEAN,
	COLUMN_STD,
	COLUMN_MIN,
	COLUMN_MAX,
	COLUMN_ABSMAX,
	COLUMN_FIRST_NAN,
	COLUMN_FIRST_INF,
	COLUMN_NOTE,
};

/* The names from count to first_inf are those of the members of stats/STATE/all. */
const struct listing_column stats_columns[] = {
	[COLUMN_NAME] = { "name", LISTING_TEXT },
	[COLUMN_STATE] = { "state", LISTING_TEXT },
	[COLUMN_COUNT] = { "count", LISTING_NUMBER, true },
	[COLUMN_NAN] = { "nan", LISTING_NUMBER },
	[COLUMN_INF] = { "inf", LISTING_NUMBER },
	[COLUMN_ZERO] = { "zero", LISTING_NUMBER },
	[COLUMN_NORM] = { "norm", LISTING_REAL },
	[COLUMN_MEAN] = { "mean", LISTING_REAL },
	[COLUMN_STD] = { "std", LISTING_REAL },
	[COLUMN_MIN] = { "min", LISTING_REAL },
	[COLUMN_MAX] = { "max", LISTING_REAL },
	[COLUMN_ABSMAX] = { "absmax", LISTING_REAL, true },
	[COLUMN_FIRST_NAN] = { "first_nan", LISTING_NUMBER, true },
	[COLUMN_FIRST_INF] = { "first_inf", LISTING_NUMBER, true },
	[COLUMN_NOTE] = { "note", LISTING_TEXT },
	{ NULL },
};

/* Adds the place of the first NaN or, if there is none, of the first infinity. */
static void add_place(struct listing *t, const char *mountpoint, const struct param_state *s,
		      const char *which, const char *name)
{
	char path[PATH_MAX], place[512], note[600], *field[5] = { place };

	snprintf(path, sizeof(path), "%s/stats/%s/%s", s->param->path, s->state, which);
	if (mount_file_value(mountpoint, path, place, sizeof(place)))
		return;
	for (int i = 1; i < 5; i++) {
		field[i] = field[i - 1] + strcspn(field[i - 1], "\t");
		if (*field[i])
			*field[i]++ = '\0';
	}
	snprintf(note, sizeof(note), "%s at [%s]%s%s%s%s%s%s", name, field[0],
		 *field[2] ? ", " : "", field[2], *field[3] ? ", " : "", field[3],
		 *field[4] ? " at " : "", field[4]);
	listing_text(t, COLUMN_NOTE, note);
}

static int add(struct listing *t, const char *mountpoint, const struct param_state *s)
{
	char path[PATH_MAX], *text = NULL;
	json_t *all = NULL, *value;
	int e;

	listing_row(t);
	listing_text(t, COLUMN_NAME, s->param->name);
	listing_text(t, COLUMN_STATE, s->state);
	listing_text(t, COLUMN_NOTE, "");
	snprintf(path, sizeof(path), "%s/stats/%s/all", s->param->path, s->state);
	e = mount_file_read(mountpoint, path, &text);
	if (!e)
		all = json_loads(text, 0, NULL);
	free(text);
	if (!all) {
		listing_text(t, COLUMN_NOTE,
			     !e                 ? "not the file of a mount"
			     : e == -EOPNOTSUPP ? "complex numbers have no statistics"
						: strerror(-e));
		return FRAGCTL_FAILURE;
	}
	for (size_t column = COLUMN_COUNT; column < COLUMN_NOTE; column++)
		listing_json(t, column,
			     json_incref(json_object_get(all, stats_columns[column].name)));
	value = json_object_get(all, "nan");
	if (json_integer_value(value))
		add_place(t, mountpoint, s, "first_nan", "NaN");
	else if (json_integer_value(json_object_get(all, "inf")))
		add_place(t, mountpoint, s, "first_inf", "infinity");
	json_decref(all);
	return 0;
}

/* ---- all states: .frag/stats ---- */

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F');
}

/* Replaces "%0A" by the control character.  Escapes of other characters are of the file's name,
 * and stay.
 */
static void restore_controls(char *text)
{
	char *to = text;

	while (*text) {
		char code[3] = "", c = '\0';

		if (*text == '%' && is_hex(text[1]) && is_hex(text[2]))
			c = (char)strtoul(memcpy(code, text + 1, 2), NULL, 16);
		if (!iscntrl((unsigned char)c))
			c = '\0';
		*to++ = c ? c : *text;
		text += c ? 3 : 1;
	}
	*to = '\0';
}

/* Adds a line of .frag/stats.  Its first_nan and first_inf are numbers of elements. */
static int add_line(struct listing *t, char *const *names, char *const *fields, size_t n)
{
	const char *error = listing_find(names, fields, n, "error");
	const char *place = listing_find(names, fields, n, "place");
	bool nan = strtoull(listing_find(names, fields, n, "nan"), NULL, 10) > 0;
	char *folder, note[600] = "";

	for (size_t i = 0; i < n; i++)
		restore_controls(fields[i]);
	folder = strstr(listing_find(names, fields, n, "name"), "/params/");
	/* mp_rank_00/params/NAME is the mp_rank_00/NAME of fragctl ls */
	if (folder)
		memmove(folder, folder + strlen("/params"),
			strlen(folder + strlen("/params")) + 1);
	listing_row(t);
	for (size_t column = 0; column < COLUMN_NOTE; column++) {
		const char *text = listing_find(names, fields, n, t->columns[column].name);
		bool none = t->columns[column].kind == LISTING_REAL && !strcmp(text, "nan");

		listing_field(t, column, none ? "-" : text); /* no element is finite */
	}
	if (strcmp(error, "-") != 0)
		snprintf(note, sizeof(note), "%s", error);
	else if (strcmp(place, "-") != 0)
		snprintf(note, sizeof(note), "%s at element %s, rank %s, %s at %s",
			 nan ? "NaN" : "infinity",
			 listing_find(names, fields, n, nan ? "first_nan" : "first_inf"),
			 listing_find(names, fields, n, "rank"), place,
			 listing_find(names, fields, n, "offset"));
	listing_text(t, COLUMN_NOTE, note);
	return strcmp(error, "-") ? FRAGCTL_FAILURE : 0;
}

/* Reads a line.  False: there are no more, or the read has failed. */
static bool read_line(FILE *f, char **line, size_t *room)
{
	if (getline(line, room, f) < 0)
		return false;
	(*line)[strcspn(*line, "\n")] = '\0';
	return true;
}

/* Adds all lines of .frag/stats, which the ranks make side by side. */
static int add_all(struct listing *t, const char *mountpoint)
{
	char *names[LISTING_FIELDS_MAX], *fields[LISTING_FIELDS_MAX], path[PATH_MAX];
	CLEANUP(free) char *heading = NULL;
	CLEANUP(free) char *line = NULL;
	struct progress progress;
	size_t n, room = 0;
	int failed = 0, e;
	FILE *f;

	snprintf(path, sizeof(path), "%s/.frag/stats", mountpoint);
	f = fopen(path, "re");
	if (!f)
		return call_fail("%s/.frag/stats: %s", target_name(mountpoint),
				 strerror(errno));
	progress_begin(&progress, "states");
	n = read_line(f, &heading, &room) ? listing_cut(heading, names) : 0;
	for (room = 0; read_line(f, &line, &room);) {
		if (listing_cut(line, fields) == n)
			failed |= add_line(t, names, fields, n);
		progress_step(&progress, json_array_size(t->rows), 0);
	}
	e = ferror(f) ? errno : 0;
	fclose(f);
	progress_end(&progress);
	if (e)
		return call_fail("%s/.frag/stats: %s", target_name(mountpoint), strerror(e));
	return failed;
}

/* ---- states that match ---- */

static int add_matching(struct listing *t, const char *mountpoint, char *const *patterns)
{
	struct progress progress;
	struct param_states states;
	int failed = params_read_states(&states, mountpoint, patterns);

	if (failed)
		return failed;
	progress_begin(&progress, "states");
	for (size_t i = 0; i < states.n; i++) {
		progress_step(&progress, i, states.n);
		failed |= add(t, mountpoint, &states.list[i]);
	}
	progress_end(&progress);
	params_free_all(&states);
	return failed;
}

int stats_run(const struct call *call)
{
	char mountpoint[TARGET_PATH_MAX];
	int failed, rc;
	struct listing t;

	rc = listing_init(&t, call, stats_columns);
	if (rc)
		return rc;
	rc = target_open(call->job, false, mountpoint);
	if (!rc) {
		failed = *call->words ? add_matching(&t, mountpoint, call->words)
				      : add_all(&t, mountpoint);
		rc = json_array_size(t.rows) || !failed ? listing_print(&t, "states") : 0;
		rc = rc ? rc : failed;
	}
	listing_fini(&t);
	return rc;
}
