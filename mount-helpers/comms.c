/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names as in the headings of .frag/comms. */
const struct listing_column comms_columns[] = {
	{ .name = "op" },
	{ .name = "size", .kind = LISTING_BYTES },
	{ .name = "count", .kind = LISTING_NUMBER },
	{ .name = "bytes", .kind = LISTING_BYTES },
	{ .name = "min_us", .kind = LISTING_REAL, .more = true },
	{ .name = "p50_us", .kind = LISTING_REAL },
	{ .name = "p99_us", .kind = LISTING_REAL },
	{ .name = "max_us", .kind = LISTING_REAL, .more = true },
	{ .name = "algbw_gbps", .kind = LISTING_REAL },
	{ .name = "busbw_gbps", .kind = LISTING_REAL },
	{ .name = "caller" },
	{ .name = NULL },
};

static const struct listing_column rank_columns[] = {
	{ .name = "rank", .kind = LISTING_NUMBER },
	{ .name = "count", .kind = LISTING_NUMBER },
	{ .name = "behind_us", .kind = LISTING_REAL },
	{ .name = "behind_max_us", .kind = LISTING_REAL },
	{ .name = NULL },
};

/* Adds a row for each line of the text up to an empty line or the end.  The first line is the
 * heading.
 */
static void add_block(struct listing *t, char **text)
{
	char *names[LISTING_FIELDS_MAX], *fields[LISTING_FIELDS_MAX],
		*line = strsep(text, "\n");
	size_t n = line ? listing_cut(line, names) : 0, has;

	while ((line = strsep(text, "\n")) && *line) {
		has = listing_cut(line, fields); /* a rank that is left out has fewer fields */
		listing_fields(t, names, fields, has < n ? has : n);
	}
}

static int print(const struct call *call, struct listing *operations, struct listing *ranks)
{
	json_t *root;
	int rc;

	if (call_has(call, 'J')) {
		root = json_pack("{so}", "output_version", call_output_version(call));
		json_object_set_new(root, "operations", listing_rows_json(operations));
		json_object_set_new(root, "ranks", listing_rows_json(ranks));
		return call_print_json(root);
	}
	rc = listing_print(operations, "operations");
	if (rc || call_has(call, 'o') || !json_array_size(ranks->rows))
		return rc;
	putchar('\n');
	return listing_print(ranks, "ranks");
}

static int show(const struct call *call, char *text)
{
	struct call plain = *call; /* -o names columns of operations */
	struct listing operations, ranks;
	int rc = listing_init(&operations, call, comms_columns);

	if (rc)
		return rc;
	plain.output = NULL;
	rc = listing_init(&ranks, &plain, rank_columns);
	if (!rc) {
		add_block(&operations, &text);
		add_block(&ranks, &text);
		rc = print(call, &operations, &ranks);
		listing_fini(&ranks);
	}
	listing_fini(&operations);
	return rc;
}

int comms_run(const struct call *call)
{
	char mountpoint[TARGET_PATH_MAX], name[64] = ".frag/comms", why[PATH_MAX + 200], *text;
	int rc = target_open_word(call, false, mountpoint);

	if (rc)
		return rc;
	if (target_check_rank(mountpoint, call_has(call, 'R') ? (int64_t)call->rank : -1, why,
			      sizeof(why)))
		return call_fail("%s", why);
	if (call_has(call, 'R'))
		snprintf(name, sizeof(name), "ranks/%u/comms", call->rank);
	rc = mount_file_read(mountpoint, name, &text);
	if (rc)
		return call_fail("%s/%s: %s", target_name(mountpoint), name, strerror(-rc));
	if (!strcmp(text, "off\n"))
		rc = call_fail("%s/%s: nothing is counted without FRAG_COMMS=1",
			       target_name(mountpoint), name);
	else if (strncmp(text, "op\t", 3) != 0)
		rc = call_fail("%s/%s: %s", target_name(mountpoint), name, text);
	else
		rc = show(call, text);
	free(text);
	return rc;
}
