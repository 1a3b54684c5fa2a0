/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/fragments.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/state-file.h"
#include "mount-helpers/target.h"

#include "engine/base/base.h"
#include "engine/base/one-line.h"

#include <errno.h>
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { WIDTH = 80, NAME_WIDTH = 32, CELLS_MIN = 10, CELLS_MAX = 400, RANKS_SHOWN = 32 };

enum {
	COLUMN_NAME,
	COLUMN_STATE,
	COLUMN_RANK,
	COLUMN_TIER,
	COLUMN_PARTITION,
	COLUMN_OFFSET,
	COLUMN_PLACE,
	COLUMN_NUMEL
};

const struct listing_column map_columns[] = {
	[COLUMN_NAME] = { "name", LISTING_TEXT },
	[COLUMN_STATE] = { "state", LISTING_TEXT },
	[COLUMN_RANK] = { "rank", LISTING_NUMBER },
	[COLUMN_TIER] = { "tier", LISTING_TEXT },
	[COLUMN_PARTITION] = { "partition", LISTING_TEXT },
	[COLUMN_OFFSET] = { "offset", LISTING_NUMBER },
	[COLUMN_PLACE] = { "param_offset", LISTING_TEXT },
	[COLUMN_NUMEL] = { "numel", LISTING_NUMBER },
	{ NULL },
};

static const struct {
	const char *name, *block;
	char letter;
	const char *opacity; /* of the tier in SVG */
} tiers[] = {
	{ "host", "█", '#', "1" },
	{ "device", "▓", '@', "0.8" },
	{ "swap", "▒", '=', "0.55" },
	{ "file", "░", '-', "0.4" },
};

static size_t tier_of(const char *name)
{
	size_t i = 0;

	while (i + 1 < ARRAY_SIZE(tiers) && strcmp(tiers[i].name, name) != 0)
		i++;
	return i;
}

/* Returns a hue of the colour wheel.  Ranks that are neighbours get hues far apart, however
 * many ranks there are.
 */
static unsigned hue_of(uint32_t rank)
{
	return (unsigned)((uint64_t)rank * 137508 / 1000 % 360);
}

/* Returns a colour of the 6 x 6 x 6 cube that terminals have. */
static unsigned colour_of(uint32_t rank)
{
	static const uint8_t wheel[] = {
		39, 208, 76, 170, 220, 44, 196, 141, 112, 214, 33, 205
	};

	return wheel[rank % ARRAY_SIZE(wheel)];
}

/* ---- the pieces of one state, one behind the other ---- */

struct strip {
	const struct param *param;
	const char *state;
	struct fragments fragments;
	uint64_t numel;
};

/* Keeps the fragments of the state without replicas, which lie where a fragment before them
 * does.
 */
static void keep_state(struct strip *s)
{
	struct fragment *list = s->fragments.list;
	size_t kept = 0;

	for (size_t i = 0; i < s->fragments.n; i++) {
		bool again = false;

		if (strcmp(list[i].state, s->state) != 0 || !list[i].numel)
			continue;
		for (size_t k = 0; k < kept && !again; k++)
			again = !strcmp(list[k].param_offset, list[i].param_offset);
		if (again)
			continue;
		s->numel += list[i].numel;
		list[kept++] = list[i];
	}
	s->fragments.n = kept;
}

/* Finds the fragment that has the middle of a cell. */
static const struct fragment *piece_at(const struct strip *s, unsigned cell, unsigned cells)
{
	uint64_t at = (uint64_t)(((double)cell + 0.5) / cells * (double)s->numel);

	for (size_t i = 0; i < s->fragments.n; i++) {
		if (at < s->fragments.list[i].numel)
			return &s->fragments.list[i];
		at -= s->fragments.list[i].numel;
	}
	return NULL;
}

/* ---- for a terminal ---- */

struct drawing {
	bool ascii, colours;
	unsigned cells;
	uint32_t nranks;
	bool seen[ARRAY_SIZE(tiers)];
	FILE *svg;
	unsigned row;
};

/* Prints a name in NAME_WIDTH columns: a character of UTF-8 takes one.  A longer name is cut.
 */
static void print_name(const char *text)
{
	char name[4 * NAME_WIDTH + 4];
	int width = 0, bytes = 0;

	one_line(text, name, sizeof(name));
	for (; name[bytes]; bytes++) {
		bool begins = (name[bytes] & 0xc0) != 0x80;

		if (begins && width == NAME_WIDTH)
			break;
		width += begins;
	}
	printf("%.*s%*s ", bytes, name, NAME_WIDTH - width, "");
}

static void print_strip(struct drawing *d, const struct strip *s)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
	int64_t rank = -1;

	print_name(s->param->name);
	for (unsigned cell = 0; cell < d->cells && s->numel; cell++) {
		const struct fragment *f = piece_at(s, cell, d->cells);

		if (!f)
			continue;
		if (d->colours && f->rank != rank)
			printf("\033[38;5;%um", colour_of(f->rank));
		rank = f->rank;
		if (d->colours && !d->ascii)
			fputs(tiers[tier_of(f->tier)].block, stdout);
		else
			putchar(digits[f->rank % (sizeof(digits) - 1)]);
	}
	puts(d->colours ? "\033[0m" : "");
}

static void print_legend(const struct drawing *d)
{
	printf("\n%s", d->colours ? "ranks" : "digits are ranks, modulo 36;");
	for (uint32_t rank = 0; d->colours && rank < d->nranks && rank < 32; rank++)
		printf(" \033[38;5;%um%s %u\033[0m", colour_of(rank), d->ascii ? "#" : "█",
		       rank);
	fputs("  tiers", stdout);
	for (size_t i = 0; i < ARRAY_SIZE(tiers); i++)
		if (d->seen[i])
			printf(d->colours && !d->ascii ? " %s %s" : "%s %s",
			       d->colours && !d->ascii ? tiers[i].block : "", tiers[i].name);
	putchar('\n');
}

/* Prints the kind of each group, and its ranks in the order of shards. */
static void print_groups(const char *mountpoint)
{
	char name[64], kind[64], *ranks, *line, *save;

	for (uint32_t group = 0;; group++) {
		snprintf(name, sizeof(name), "groups/%" PRIu32 "/kind", group);
		if (mount_file_value(mountpoint, name, kind, sizeof(kind)))
			return;
		snprintf(name, sizeof(name), "groups/%" PRIu32 "/ranks", group);
		if (mount_file_read(mountpoint, name, &ranks))
			return;
		printf("group %" PRIu32 "  %s  ranks", group, kind);
		strtok_r(ranks, "\n", &save); /* the heading */
		for (int n = 0; (line = strtok_r(NULL, "\n", &save)) && n <= RANKS_SHOWN; n++)
			printf(n < RANKS_SHOWN ? " %.*s" : " ...", (int)strcspn(line, "\t"),
			       line);
		putchar('\n');
		free(ranks);
	}
}

/* ---- SVG ---- */

enum { SVG_ROW = 18, SVG_NAME = 320, SVG_WIDTH = 800 };

/* Writes text as XML in UTF-8. */
static void put_escaped(FILE *to, const char *text)
{
	json_t *utf8 = one_line_json(text);
	char line[1024];

	one_line(utf8 ? json_string_value(utf8) : "", line, sizeof(line));
	for (char *at = line; *at; at++)
		if (strchr("<&>\"", *at))
			fprintf(to, "&#%d;", *at);
		else
			fputc(*at, to);
	json_decref(utf8);
}

static void draw_strip(struct drawing *d, const struct strip *s)
{
	unsigned y = d->row++ * SVG_ROW;
	double x = SVG_NAME;

	fprintf(d->svg, "<text x=\"%d\" y=\"%u\" text-anchor=\"end\">", SVG_NAME - 8, y + 13);
	put_escaped(d->svg, s->param->name);
	fputs("</text>\n", d->svg);
	for (size_t i = 0; i < s->fragments.n; i++) {
		const struct fragment *f = &s->fragments.list[i];
		double width = (double)f->numel / (double)s->numel * SVG_WIDTH;

		fprintf(d->svg,
			"<rect x=\"%.2f\" y=\"%u\" width=\"%.2f\" height=\"%d\" "
			"fill=\"hsl(%u,65%%,50%%)\" fill-opacity=\"%s\"><title>rank %" PRIu32
			", %s, partition ",
			x, y + 2, width, SVG_ROW - 4, hue_of(f->rank),
			tiers[tier_of(f->tier)].opacity, f->rank, f->tier);
		put_escaped(d->svg, f->partition);
		fprintf(d->svg, " at %s, %" PRIu64 " elements</title></rect>\n", f->offset,
			f->numel);
		x += width;
	}
}

static void begin_svg(FILE *to, size_t rows)
{
	fprintf(to,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%zu\" "
		"font-family=\"monospace\" font-size=\"12\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
		SVG_NAME + SVG_WIDTH + 10, (rows + 2) * SVG_ROW);
}

static void end_svg(const struct drawing *d)
{
	unsigned y = (d->row + 1) * SVG_ROW, x = SVG_NAME;

	for (uint32_t rank = 0; rank < d->nranks && rank < 16; rank++, x += 48)
		fprintf(d->svg,
			"<rect x=\"%u\" y=\"%u\" width=\"12\" height=\"12\" "
			"fill=\"hsl(%u,65%%,50%%)\"/><text x=\"%u\" y=\"%u\">%" PRIu32
			"</text>\n",
			x, y - 10, hue_of(rank), x + 16, y, rank);
	fputs("</svg>\n", d->svg);
}

/* ---- */

static void add_rows(struct listing *t, const struct strip *s)
{
	for (size_t i = 0; i < s->fragments.n; i++) {
		const struct fragment *f = &s->fragments.list[i];

		listing_row(t);
		listing_text(t, COLUMN_NAME, s->param->name);
		listing_text(t, COLUMN_STATE, s->state);
		listing_number(t, COLUMN_RANK, f->rank);
		listing_text(t, COLUMN_TIER, f->tier);
		listing_text(t, COLUMN_PARTITION, f->partition);
		listing_field(t, COLUMN_OFFSET, f->offset);
		listing_text(t, COLUMN_PLACE, f->param_offset);
		listing_number(t, COLUMN_NUMEL, f->numel);
	}
}

static void look(struct drawing *d, const struct strip *s)
{
	for (size_t i = 0; i < s->fragments.n; i++) {
		const struct fragment *f = &s->fragments.list[i];

		d->seen[tier_of(f->tier)] = true;
		d->nranks = f->rank >= d->nranks ? f->rank + 1 : d->nranks;
	}
}

/* Shows a parameter: the fragments of its main state or, if that has none, of its first state
 * that has fragments.
 */
static int show(struct drawing *d, struct listing *t, bool table, const char *mountpoint,
		const struct param *param)
{
	char **states = params_states(mountpoint, param);
	struct strip s = { .param = param };
	int e = states ? fragments_read(&s.fragments, mountpoint, param) : -errno;

	if (e) {
		params_free_names(states);
		return call_fail("%s: %s", param->name, strerror(-e));
	}
	s.state = *states ? state_file_main(states) : "";
	for (size_t i = 0; i < s.fragments.n; i++)
		if (!strcmp(s.fragments.list[i].state, s.state))
			goto found;
	if (s.fragments.n)
		s.state = s.fragments.list[0].state;
found:
	keep_state(&s);
	look(d, &s);
	if (d->svg)
		draw_strip(d, &s);
	else if (table)
		add_rows(t, &s);
	else
		print_strip(d, &s);
	fragments_free(&s.fragments);
	params_free_names(states);
	return 0;
}

static unsigned count_cells(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size = { 0 };
	int width = columns ? atoi(columns) : 0, cells;

	if (width <= 0 && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
		width = size.ws_col;
	cells = (width > 0 ? width : WIDTH) - NAME_WIDTH - 2;
	return (unsigned)(cells < CELLS_MIN   ? CELLS_MIN
			  : cells > CELLS_MAX ? CELLS_MAX
					      : cells);
}

static int show_all(struct drawing *d, struct listing *t, bool table, const char *mountpoint,
		    const struct params *params)
{
	bool draws = !d->svg && !table && isatty(STDOUT_FILENO);
	struct progress progress = { 0 };
	int rc = 0;

	if (!draws)
		progress_begin(&progress, "parameters");
	for (size_t i = 0; i < params->n; i++) {
		if (!draws)
			progress_step(&progress, i, params->n);
		rc |= show(d, t, table, mountpoint, &params->list[i]);
	}
	progress_end(&progress);
	return rc;
}

int map_run(const struct call *call)
{
	bool table = call_has(call, 'J') || call_has(call, 'H') || call_has(call, 'o');
	struct drawing d = { .cells = count_cells() };
	char mountpoint[TARGET_PATH_MAX];
	struct params params;
	struct listing t;
	int rc = listing_init(&t, call, map_columns);

	if (rc)
		return rc;
	setlocale(LC_CTYPE, "");
	d.ascii = call_has(call, 'a') || strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
	d.colours = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
	rc = target_open(call->job, false, mountpoint);
	if (!rc)
		rc = params_read(&params, mountpoint, call->words);
	if (rc)
		goto fini;
	if (call->svg) {
		d.svg = fopen(call->svg, "we");
		if (!d.svg) {
			rc = call_fail("%s: %s", call->svg, strerror(errno));
			goto free_params;
		}
		begin_svg(d.svg, params.n);
	}
	rc = show_all(&d, &t, table, mountpoint, &params);
	if (d.svg) {
		end_svg(&d);
		if (fclose(d.svg))
			rc = call_fail("%s: %s", call->svg, strerror(errno));
	} else if (table) {
		rc |= listing_print(&t, "pieces");
	} else {
		print_legend(&d);
		print_groups(mountpoint);
	}
free_params:
	params_free(&params);
fini:
	listing_fini(&t);
	return rc;
}
