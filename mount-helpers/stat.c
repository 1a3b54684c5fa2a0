/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/base.h"
#include "engine/base/one-line.h"
#include "mount-helpers/commands.h"
#include "mount-helpers/fragments.h"
#include "mount-helpers/params.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/target.h"

#include <errno.h>
#include <limits.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>

static const char *const texts[] = { "shape", "dtype", "numel", "group", "group_index" };
static const char *const attributes[] = { "dtype", "generation", "tier", "owners",
					  "loss_scale" };

/* The columns between state and bytes are the attributes above. */
enum {
	COLUMN_STATE,
	COLUMN_ATTRIBUTES,
	COLUMN_BYTES = COLUMN_ATTRIBUTES + ARRAY_SIZE(attributes),
	COLUMN_WRITABLE,
	COLUMN_CHANGED
};

static const struct listing_column state_columns[] = {
	[COLUMN_STATE] = { "state", LISTING_TEXT },
	[COLUMN_ATTRIBUTES] = { "dtype", LISTING_TEXT },
	[COLUMN_ATTRIBUTES + 1] = { "generation", LISTING_NUMBER },
	[COLUMN_ATTRIBUTES + 2] = { "tier", LISTING_TEXT },
	[COLUMN_ATTRIBUTES + 3] = { "owners", LISTING_TEXT },
	[COLUMN_ATTRIBUTES + 4] = { "loss_scale", LISTING_TEXT },
	[COLUMN_BYTES] = { "bytes", LISTING_BYTES },
	[COLUMN_WRITABLE] = { "writable", LISTING_TEXT },
	[COLUMN_CHANGED] = { "changed", LISTING_TEXT },
	{ NULL },
};

enum {
	PIECE_RANK,
	PIECE_STATE,
	PIECE_TIER,
	PIECE_PARTITION,
	PIECE_OFFSET,
	PIECE_PLACE,
	PIECE_NUMEL
};

static const struct listing_column fragment_columns[] = {
	[PIECE_RANK] = { "rank", LISTING_NUMBER },
	[PIECE_STATE] = { "state", LISTING_TEXT },
	[PIECE_TIER] = { "tier", LISTING_TEXT },
	[PIECE_PARTITION] = { "partition", LISTING_TEXT },
	[PIECE_OFFSET] = { "offset", LISTING_NUMBER },
	[PIECE_PLACE] = { "param_offset", LISTING_TEXT },
	[PIECE_NUMEL] = { "numel", LISTING_NUMBER },
	{ NULL },
};

static void add_state(struct listing *t, const char *mountpoint, const struct param *p,
		      const char *state)
{
	char path[PATH_MAX], name[64], value[XATTR_SIZE_MAX + 1], changed[40];
	struct stat st;
	ssize_t length;
	struct tm tm;

	snprintf(path, sizeof(path), "%s/%s/%s", mountpoint, p->path, state);
	listing_row(t);
	listing_text(t, COLUMN_STATE, state);
	for (size_t i = 0; i < ARRAY_SIZE(attributes); i++) {
		snprintf(name, sizeof(name), "user.frag.%s", attributes[i]);
		length = getxattr(path, name, value, sizeof(value) - 1);
		if (length <= 0)
			continue;
		value[length] = '\0';
		listing_field(t, COLUMN_ATTRIBUTES + i, value);
	}
	if (stat(path, &st))
		return;
	listing_number(t, COLUMN_BYTES, (uint64_t)st.st_size);
	listing_text(t, COLUMN_WRITABLE, st.st_mode & 0222 ? "yes" : "no");
	if (localtime_r(&st.st_mtime, &tm) &&
	    strftime(changed, sizeof(changed), "%FT%T%z", &tm))
		listing_text(t, COLUMN_CHANGED, changed);
}

static void add_fragment(struct listing *t, const struct fragment *f)
{
	listing_row(t);
	listing_number(t, PIECE_RANK, f->rank);
	listing_text(t, PIECE_STATE, f->state);
	listing_text(t, PIECE_TIER, f->tier);
	listing_text(t, PIECE_PARTITION, f->partition);
	listing_field(t, PIECE_OFFSET, f->offset);
	listing_text(t, PIECE_PLACE, f->param_offset);
	listing_number(t, PIECE_NUMEL, f->numel);
}

/* Makes a number of digits, null of "", and a string of any other text. */
static json_t *value_json(const char *value)
{
	if (!*value)
		return json_null();
	if (!value[strspn(value, "0123456789")] && strlen(value) < 19)
		return json_integer(strtoll(value, NULL, 10));
	return one_line_json(value);
}

static json_t *to_json(const char *mountpoint, const struct param *p,
		       const struct listing *states, const struct listing *pieces)
{
	json_t *object = json_pack("{s:o}", "name", one_line_json(p->name));
	char value[1024];

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		params_value(mountpoint, p, texts[i], value, sizeof(value));
		json_object_set_new(object, texts[i],
				    i ? value_json(value) : one_line_json(value));
	}
	json_object_set_new(object, "states", listing_rows_json(states));
	json_object_set_new(object, "fragments", listing_rows_json(pieces));
	return object;
}

static void print(const char *mountpoint, const struct param *p, struct listing *states,
		  struct listing *pieces)
{
	char value[1024];

	one_line_put(stdout, p->name);
	putchar('\n');
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		params_value(mountpoint, p, texts[i], value, sizeof(value));
		if (!*value)
			continue;
		printf("  %-12s ", texts[i]);
		one_line_put(stdout, value);
		putchar('\n');
	}
	putchar('\n');
	listing_print(states, "states");
	putchar('\n');
	listing_print(pieces, "fragments");
}

/* Shows a parameter; list: where its JSON goes, or NULL. */
static int show(const struct call *call, const char *mountpoint, const struct param *p,
		json_t *list)
{
	char **names = params_states(mountpoint, p);
	struct listing states, pieces;
	struct fragments f;
	int e = names ? fragments_read(&f, mountpoint, p) : -errno;

	if (e) {
		params_free_names(names);
		return call_fail("%s: %s", p->name, strerror(-e));
	}
	if (listing_init(&states, call, state_columns))
		return FRAGCTL_FAILURE;
	if (listing_init(&pieces, call, fragment_columns))
		return FRAGCTL_FAILURE;
	for (char **name = names; *name; name++)
		add_state(&states, mountpoint, p, *name);
	for (size_t i = 0; i < f.n; i++)
		add_fragment(&pieces, &f.list[i]);
	if (list)
		json_array_append_new(list, to_json(mountpoint, p, &states, &pieces));
	else
		print(mountpoint, p, &states, &pieces);
	listing_fini(&states);
	listing_fini(&pieces);
	fragments_free(&f);
	params_free_names(names);
	return 0;
}

int stat_run(const struct call *call)
{
	json_t *list = call_has(call, 'J') ? json_array() : NULL;
	char mountpoint[TARGET_PATH_MAX];
	struct progress progress = { 0 };
	struct params params;
	int rc = target_open(call->job, false, mountpoint);

	if (!rc)
		rc = params_read(&params, mountpoint, call->words);
	if (rc) {
		json_decref(list);
		return rc;
	}
	if (list)
		progress_begin(&progress, "parameters");
	for (size_t i = 0; i < params.n; i++) {
		if (list)
			progress_step(&progress, i, params.n);
		else if (i)
			putchar('\n');
		rc |= show(call, mountpoint, &params.list[i], list);
	}
	progress_end(&progress);
	params_free(&params);
	if (list)
		rc |= call_print_object(call, "params", list);
	return rc;
}
