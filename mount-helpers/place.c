/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/target.h"

#include "engine/base/base.h"
#include "engine/base/vec.h"
#include "engine/base/one-line.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_FIRST_MS = 2, LOOK_MS = 100 };

/* Names as in the heading of .frag/place. */
const struct listing_column place_columns[] = {
	{ .name = "rank", .kind = LISTING_NUMBER },
	{ .name = "waiting", .kind = LISTING_NUMBER },
	{ .name = "waiting_bytes", .kind = LISTING_BYTES },
	{ .name = "moved", .kind = LISTING_NUMBER },
	{ .name = "moved_bytes", .kind = LISTING_BYTES },
	{ .name = "failed", .kind = LISTING_NUMBER },
	{ .name = "error" },
	{ .name = NULL },
};

struct place_sums {
	uint64_t waiting, waiting_bytes, moved_bytes, failed;
	/* the first rank that is silent and may be alive, and why; "": none */
	char unknown[256];
	struct vec gone; /* of uint64_t: ranks whose process is gone */
};

/* ---- .frag/place ---- */

static uint64_t number_in(char **names, char **fields, size_t n, const char *name)
{
	const char *field = listing_find(names, fields, n, name);

	return field ? strtoull(field, NULL, 10) : 0;
}

static bool says_nothing(char **names, char **fields, size_t n)
{
	return !strcmp(listing_find(names, fields, n, "waiting"), "-");
}

static bool is_gone(const struct place_sums *sums, uint64_t rank)
{
	const uint64_t *gone = sums->gone.items;

	for (uint32_t i = 0; i < sums->gone.count; i++)
		if (gone[i] == rank)
			return true;
	return false;
}

static void add_gone(struct place_sums *sums, uint64_t rank)
{
	uint64_t *gone = vec_add(&sums->gone, sizeof(*gone));

	if (gone)
		*gone = rank;
}

/* Replaces *sums by those of the ranks' lines; makes each line a row of t, unless t is NULL. */
static void read_ranks(char *text, struct listing *t, struct place_sums *sums)
{
	char *names[LISTING_FIELDS_MAX], *fields[LISTING_FIELDS_MAX],
		*line = strsep(&text, "\n");
	size_t n = listing_cut(line, names), has;
	const char *error;

	free(sums->gone.items);
	*sums = (struct place_sums){ 0 };
	while ((line = strsep(&text, "\n")) && *line) {
		has = listing_cut(line, fields);
		has = has < n ? has : n;
		sums->waiting += number_in(names, fields, has, "waiting");
		sums->waiting_bytes += number_in(names, fields, has, "waiting_bytes");
		sums->moved_bytes += number_in(names, fields, has, "moved_bytes");
		sums->failed += number_in(names, fields, has, "failed");
		error = listing_find(names, fields, has, "error");
		/* a rank whose process is gone moves nothing; a silent one still may */
		if (says_nothing(names, fields, has) && !strcmp(error, strerror(EIO)))
			add_gone(sums, number_in(names, fields, has, "rank"));
		else if (says_nothing(names, fields, has) && !*sums->unknown)
			snprintf(sums->unknown, sizeof(sums->unknown), "rank %s: %s",
				 listing_find(names, fields, has, "rank"), error);
		if (t)
			listing_fields(t, names, fields, has);
	}
}

static int look(const char *mountpoint, struct listing *t, struct place_sums *sums)
{
	char *text;
	int rc = mount_file_read(mountpoint, ".frag/place", &text);

	if (rc)
		return call_fail("%s/.frag/place: %s", target_name(mountpoint), strerror(-rc));
	read_ranks(text, t, sums);
	free(text);
	return 0;
}

static int show(const struct call *call, const char *mountpoint)
{
	struct place_sums sums = { 0 };
	struct listing t;
	int rc = listing_init(&t, call, place_columns);

	if (rc)
		return rc;
	rc = look(mountpoint, &t, &sums);
	if (!rc)
		rc = listing_print(&t, "ranks");
	free(sums.gone.items);
	listing_fini(&t);
	return rc;
}

/* ---- an order ---- */

/* Writes a line to .frag/control.  Returns an errno; 0: the ranks have taken an order, or have
 * said yes to `placed`.
 */
static int say(const char *control, const char *line)
{
	CLEANUP(close) int fd = open(control, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		/* an ENOENT of write(2) is an answer of the ranks */
		return errno == ENOENT ? ENXIO : errno;
	return -mount_file_order(fd, line);
}

/* Makes a line and writes it, as say().  word: "place", an order, or "placed", a question. */
static int say_line(const char *mountpoint, const char *word, const char *states,
		    const char *tier)
{
	char path[TARGET_PATH_MAX + 32], line[512];
	bool folder = !strncmp(states, "params/", 7);
	int n = snprintf(line, sizeof(line), "%s %s%s %s", word, folder ? "" : "params/",
			 states, tier);

	if (n >= (int)sizeof(line))
		return ENAMETOOLONG;
	snprintf(path, sizeof(path), "%s/.frag/control", mountpoint);
	return say(path, line);
}

static int give(const char *mountpoint, const char *states, const char *tier)
{
	int e = say_line(mountpoint, "place", states, tier);

	switch (e) {
	case 0:
		return 0;
	case ENOENT:
		return call_fail("%s: no rank has such a state", states);
	case ENXIO:
		return call_fail("%s: no mount of fragfs is there", target_name(mountpoint));
	case EINVAL:
		return call_usage("%s %s: states as in params/*/exp_avg, and host, swap or "
				  "device",
				  states, tier);
	case ENAMETOOLONG:
		return call_usage("%s: the pattern of states has 63 bytes at most, that of "
				  "names 127",
				  states);
	case EOPNOTSUPP:
		return call_fail("%s: a rank cannot move one of them to %s: %s/.frag/log says "
				 "why",
				 states, tier, target_name(mountpoint));
	default:
		return call_fail("%s/.frag/control: %s", target_name(mountpoint), strerror(e));
	}
}

/* Waits until no state is to move. */
static int wait_for_moves(const char *mountpoint, struct listing *t, struct place_sums *sums)
{
	struct progress progress;
	useconds_t ms = LOOK_FIRST_MS;
	int rc;

	progress_begin(&progress, "moved");
	while (!(rc = look(mountpoint, t, sums)) && sums->waiting) {
		progress_step(&progress, sums->moved_bytes,
			      sums->moved_bytes + sums->waiting_bytes);
		json_array_clear(t->rows);
		usleep(ms * 1000);
		ms = ms * 2 < LOOK_MS ? ms * 2 : LOOK_MS;
	}
	progress_end(&progress);
	return rc;
}

/* Prints why an order was not carried out.  before: the sums before the order. */
static int judge(const char *mountpoint, const struct place_sums *before,
		 const struct place_sums *sums)
{
	const uint64_t *gone = sums->gone.items;

	if (sums->failed)
		return call_fail("%" PRIu64 " states stay where they were: %s/ranks/R/log says "
				 "why",
				 sums->failed, target_name(mountpoint));
	if (*sums->unknown)
		return call_fail("%s: its states may not have moved", sums->unknown);
	for (uint32_t i = 0; i < sums->gone.count; i++)
		if (!is_gone(before, gone[i]))
			return call_fail("rank %" PRIu64 ": lost before its states had moved",
					 gone[i]);
	return 0;
}

/* Waits until the states are where they were ordered to, or will not come there.  The ranks'
 * table has no waiting states once all orders are carried out; only "placed" tells whether this
 * order was carried out or replaced.
 */
static int follow(const char *mountpoint, const struct place_sums *before, struct listing *t,
		  const char *states, const char *tier)
{
	int rc, e = EBUSY;

	do {
		struct place_sums sums = { 0 };

		json_array_clear(t->rows);
		rc = wait_for_moves(mountpoint, t, &sums);
		if (!rc)
			rc = judge(mountpoint, before, &sums);
		free(sums.gone.items);
		if (!rc)
			e = say_line(mountpoint, "placed", states, tier);
	} while (!rc && e == EBUSY);
	if (rc || !e || e == ENOENT) /* ENOENT: the trainer has dropped the states meanwhile */
		return rc;
	if (e == ECANCELED)
		return call_fail("%s: not all are in %s: another order has replaced this one",
				 states, tier);
	return call_fail("%s: not known whether they are in %s: %s", states, tier, strerror(e));
}

/* With --json, prints the order and how far the ranks are with it. */
static int report(const struct call *call, const struct listing *t, const char *states,
		  const char *tier)
{
	if (!call_has(call, 'J'))
		return 0;
	return call_print_object(call, "place",
				 json_pack("{s:o s:s s:o}", "states", one_line_json(states),
					   "tier", tier, "ranks", listing_rows_json(t)));
}

/* Carries an order out.  An order prints no table, but wrong options of a table stop it. */
static int order(const struct call *call, const char *mountpoint, const char *states,
		 const char *tier)
{
	struct place_sums before = { 0 };
	struct listing t;
	int rc = listing_init(&t, call, place_columns), said;

	if (rc)
		return rc;
	rc = look(mountpoint, NULL, &before);
	if (!rc)
		rc = give(mountpoint, states, tier);
	if (!rc) {
		rc = follow(mountpoint, &before, &t, states, tier);
		said = report(call, &t, states, tier);
		rc = rc ? rc : said;
	}
	free(before.gone.items);
	listing_fini(&t);
	return rc;
}

int place_run(const struct call *call)
{
	char mountpoint[TARGET_PATH_MAX];
	int rc = target_open(call->job, true, mountpoint);

	if (rc)
		return rc;
	if (target_is_checkpoint(mountpoint))
		return call_fail("%s: a checkpoint is mounted there: nothing trains",
				 target_name(mountpoint));
	if (!call->words[0])
		return show(call, mountpoint);
	if (!call->words[1])
		return call_usage("%s: to which tier? host, swap or device", call->words[0]);
	return order(call, mountpoint, call->words[0], call->words[1]);
}
