/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"
#include "mount-helpers/fragments.h"
#include "mount-helpers/params.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/target.h"

#include "engine/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	COLUMN_NAME,
	COLUMN_SHAPE,
	COLUMN_DTYPE,
	COLUMN_NUMEL,
	COLUMN_GROUP,
	COLUMN_RANKS,
	COLUMN_STATES,
	COLUMN_FRAGMENTS,
	COLUMN_TIERS
};

const struct listing_column ls_columns[] = {
	[COLUMN_NAME] = { "name", LISTING_TEXT },
	[COLUMN_SHAPE] = { "shape", LISTING_TEXT },
	[COLUMN_DTYPE] = { "dtype", LISTING_TEXT },
	[COLUMN_NUMEL] = { "numel", LISTING_NUMBER },
	[COLUMN_GROUP] = { "group", LISTING_NUMBER },
	[COLUMN_RANKS] = { "ranks", LISTING_TEXT },
	[COLUMN_STATES] = { "states", LISTING_TEXT },
	[COLUMN_FRAGMENTS] = { "fragments", LISTING_NUMBER, true },
	[COLUMN_TIERS] = { "tiers", LISTING_TEXT, true },
	{ NULL },
};

static void add_text(struct listing *t, size_t column, const char *mountpoint,
		     const struct param *p)
{
	char value[1024], *end;
	uint64_t number;

	if (!listing_wants(t, column))
		return;
	params_value(mountpoint, p, t->columns[column].name, value, sizeof(value));
	if (t->columns[column].kind == LISTING_TEXT) {
		listing_text(t, column, value);
		return;
	}
	number = strtoull(value, &end, 10);
	if (end != value && *value != '-')
		listing_number(t, column, number);
}

static int add_states(struct listing *t, const char *mountpoint, const struct param *p)
{
	char **states = params_states(mountpoint, p), *text = NULL;
	size_t size;
	FILE *to;

	if (!states)
		return -errno;
	to = open_memstream(&text, &size);
	for (char **state = states; *state && to; state++)
		fprintf(to, "%s%s", state == states ? "" : ",", *state);
	params_free_names(states);
	if (!to || !text_end(to, &text))
		return -ENOMEM;
	listing_text(t, COLUMN_STATES, text);
	free(text);
	return 0;
}

static int add_fragments(struct listing *t, const char *mountpoint, const struct param *p)
{
	struct fragments f;
	char *ranks, *tiers;
	int e = fragments_read(&f, mountpoint, p);

	if (e)
		return e;
	listing_number(t, COLUMN_FRAGMENTS, f.n);
	ranks = fragments_ranks(&f);
	tiers = fragments_tiers(&f);
	if (ranks)
		listing_text(t, COLUMN_RANKS, ranks);
	if (tiers)
		listing_text(t, COLUMN_TIERS, tiers);
	free(ranks);
	free(tiers);
	fragments_free(&f);
	return 0;
}

/* Adds a row.  Returns the exit status: cells that cannot be had stay empty, and a line was
 * printed.
 */
static int add(struct listing *t, const char *mountpoint, const struct param *p)
{
	int e = 0;

	listing_row(t);
	listing_text(t, COLUMN_NAME, p->name);
	for (size_t column = COLUMN_SHAPE; column <= COLUMN_GROUP; column++)
		add_text(t, column, mountpoint, p);
	if (listing_wants(t, COLUMN_STATES))
		e = add_states(t, mountpoint, p);
	if (!e && (listing_wants(t, COLUMN_RANKS) || listing_wants(t, COLUMN_FRAGMENTS) ||
		   listing_wants(t, COLUMN_TIERS)))
		e = add_fragments(t, mountpoint, p);
	return e ? target_fail(mountpoint, p->name, -e) : 0;
}

int ls_run(const struct call *call)
{
	char mountpoint[TARGET_PATH_MAX];
	struct progress progress;
	struct params params;
	struct listing t;
	int rc = listing_init(&t, call, ls_columns), failed = 0;

	if (rc)
		return rc;
	rc = target_open(call->job, false, mountpoint);
	if (!rc)
		rc = params_read(&params, mountpoint, call->words);
	if (!rc) {
		progress_begin(&progress, "parameters");
		for (size_t i = 0; i < params.n; i++) {
			progress_step(&progress, i, params.n);
			failed |= add(&t, mountpoint, &params.list[i]);
		}
		progress_end(&progress);
		params_free(&params);
		rc = listing_print(&t, "params");
		rc = rc ? rc : failed;
	}
	listing_fini(&t);
	return rc;
}
