/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/base.h"
#include "engine/base/vec.h"
#include "engine/base/one-line.h"
#include "mount-helpers/call.h"
#include "mount-helpers/commands.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/target.h"

#include <errno.h>
#include <inttypes.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct figures {
	uint64_t bytes, used, used_max, free, largest, blocks, holes, moved;
};

struct shown_block {
	uint64_t start, bytes;
	const char *state;
	char *parameters; /* tabs between them; points into the text */
};

struct map {
	uint32_t rank;
	char *text;
	struct figures figures;
	struct shown_block *blocks;
	uint32_t n, room; /* blocks in the text */
};

static void map_free(struct map *m)
{
	free(m->text);
	free(m->blocks);
}

/* ---- reading ---- */

static bool parse_figures(const char *line, struct figures *f)
{
	return sscanf(line,
		      "bytes %" SCNu64 " used %" SCNu64 " used_max %" SCNu64 " free %" SCNu64
		      " largest %" SCNu64 " blocks %" SCNu64 " holes %" SCNu64
		      " moved %" SCNu64,
		      &f->bytes, &f->used, &f->used_max, &f->free, &f->largest, &f->blocks,
		      &f->holes, &f->moved) == 8 &&
	       f->bytes;
}

/* Reads a line "START BYTES STATE [PARAMETER]...", with tabs between; cuts it behind STATE. */
static bool parse_block(char *line, struct shown_block *b)
{
	char *bytes = strchr(line, '\t'), *state = bytes ? strchr(bytes + 1, '\t') : NULL;
	char *rest;

	if (!state || sscanf(line, "%" SCNu64 "\t%" SCNu64, &b->start, &b->bytes) != 2)
		return false;
	b->state = state + 1;
	rest = strchr(b->state, '\t');
	b->parameters = rest ? rest + 1 : NULL;
	if (rest)
		*rest = '\0';
	return true;
}

static int add_block(struct map *m, const struct shown_block *b)
{
	if (!vec_grow(&m->blocks, m->n, &m->room, sizeof(*m->blocks)))
		return -ENOMEM;
	m->blocks[m->n++] = *b;
	return 0;
}

/* Reads the map of an arena.  -ENODATA: the rank has written something else. */
static int parse(struct map *m)
{
	char *rest, *line = strtok_r(m->text, "\n", &rest);
	int rc = 0;

	if (!line || !parse_figures(line, &m->figures))
		return -ENODATA;
	while (!rc && (line = strtok_r(NULL, "\n", &rest))) {
		struct shown_block b;
		uint64_t end;

		if (!strncmp(line, "and ", 4))
			break;
		if (!parse_block(line, &b) || !b.bytes || !u64_add(b.start, b.bytes, &end) ||
		    end > m->figures.bytes)
			return -EBADMSG;
		rc = add_block(m, &b);
	}
	return rc;
}

static int read_map(const char *mountpoint, uint32_t rank, struct map *m, char *why,
		    size_t whysize)
{
	char name[40];
	int rc;

	*m = (struct map){ .rank = rank };
	snprintf(name, sizeof(name), "ranks/%" PRIu32 "/arena", rank);
	rc = mount_file_read(mountpoint, name, &m->text);
	if (!rc)
		rc = parse(m);
	if (rc)
		snprintf(why, whysize, "%s/%s: %s", target_name(mountpoint), name,
			 rc != -ENODATA ? strerror(-rc)
			 : m->text[0]   ? m->text
					: "it is empty");
	if (rc)
		map_free(m);
	return rc;
}

/* ---- for people ---- */

static unsigned columns(FILE *to)
{
	const char *variable = getenv("COLUMNS");
	unsigned n = variable ? (unsigned)strtoul(variable, NULL, 10) : 0;
	struct winsize size;

	if (!ioctl(fileno(to), TIOCGWINSZ, &size) && size.ws_col)
		n = size.ws_col;
	return n < 20 ? 80 : n > 1000 ? 1000 : n;
}

static const char *const blocks_of[] = { "\u00b7", "\u2591", "\u2592", "\u2593", "\u2588" };
static const char *const ascii_of[] = { ".", "-", "=", "%", "#" };

static uint64_t cell_begin(const struct map *m, unsigned cell, unsigned cells)
{
	return (uint64_t)((unsigned __int128)m->figures.bytes * cell / cells);
}

/* Counts the bytes of [begin, end) that blocks use, from block *at on; moves *at behind the
 * blocks that end before `end`.
 */
static uint64_t used_in(const struct map *m, uint64_t begin, uint64_t end, uint64_t *at)
{
	uint64_t used = 0;

	for (; *at < m->n && m->blocks[*at].start < end; ++*at) {
		const struct shown_block *b = &m->blocks[*at];
		uint64_t b_end = b->start + b->bytes;

		used += u64_min(b_end, end) - u64_min(u64_max(b->start, begin), end);
		if (b_end > end)
			break;
	}
	return used;
}

/* Returns a shade: 0 only if all bytes are free, 4 only if all are used. */
static unsigned shade(uint64_t used, uint64_t of)
{
	if (!used || used >= of)
		return used ? 4 : 0;
	return 1 + (unsigned)((double)used / (double)of * 2.999);
}

static void print_row(const struct map *m, unsigned first, unsigned width, unsigned cells,
		      bool ascii, uint64_t *at, FILE *to)
{
	char text[16];

	fprintf(to, "%6s ", listing_size(cell_begin(m, first, cells), text));
	for (unsigned i = first; i < first + width; i++) {
		uint64_t begin = cell_begin(m, i, cells), end = cell_begin(m, i + 1, cells);

		if (end > begin)
			fputs((ascii ? ascii_of : blocks_of)[shade(used_in(m, begin, end, at),
								   end - begin)],
			      to);
	}
	putc('\n', to);
}

/* Draws the map in more rows where its blocks and holes are too many for one. */
static void print_map(const struct map *m, bool ascii, FILE *to)
{
	unsigned width = columns(to) - 7;
	unsigned rows = (unsigned)u64_min((m->n + m->figures.holes) / (width / 2) + 1, 16);
	uint64_t at = 0;

	for (unsigned i = 0; i < rows; i++)
		print_row(m, i * width, width, rows * width, ascii, &at, to);
}

static double fragmentation(const struct figures *f)
{
	return f->free ? 1 - (double)f->largest / (double)f->free : 0;
}

static void print(const struct map *m, bool ascii, FILE *to)
{
	const struct figures *f = &m->figures;
	char a[16], b[16], c[16], d[16], e[16], g[16];

	fprintf(to,
		"rank %" PRIu32 ": %s, used %s in %" PRIu64
		" blocks, high water %s, free %s in "
		"%" PRIu64 " holes, largest %s, fragmented %.0f %%, moved %s\n",
		m->rank, listing_size(f->bytes, a), listing_size(f->used, b), f->blocks,
		listing_size(f->used_max, c), listing_size(f->free, d), f->holes,
		listing_size(f->largest, e), fragmentation(f) * 100, listing_size(f->moved, g));
	print_map(m, ascii, to);
	if (m->n < f->blocks)
		fprintf(to, "(the map has the first %" PRIu32 " blocks)\n", m->n);
}

/* ---- for programs ---- */

/* Lists the names in a block's line.  NULL: no memory. */
static json_t *parameters_json(char *parameters)
{
	json_t *array = json_array();
	char *rest, *name = parameters ? strtok_r(parameters, "\t", &rest) : NULL;

	for (; array && name; name = strtok_r(NULL, "\t", &rest))
		json_array_append_new(array, one_line_json(name));
	return array;
}

static json_t *blocks_json(const struct map *m)
{
	json_t *array = json_array();

	for (uint64_t i = 0; array && i < m->n; i++) {
		const struct shown_block *b = &m->blocks[i];

		json_array_append_new(
			array, json_pack("{s:I s:I s:s s:o}", "start", (json_int_t)b->start,
					 "bytes", (json_int_t)b->bytes, "state", b->state,
					 "parameters", parameters_json(b->parameters)));
	}
	return array;
}

static json_t *map_json(const struct map *m)
{
	const struct figures *f = &m->figures;

	return json_pack("{s:I s:I s:I s:I s:I s:I s:I s:I s:I s:f s:o}", "rank",
			 (json_int_t)m->rank, "bytes", (json_int_t)f->bytes, "used",
			 (json_int_t)f->used, "used_max", (json_int_t)f->used_max, "free",
			 (json_int_t)f->free, "largest", (json_int_t)f->largest, "blocks_used",
			 (json_int_t)f->blocks, "holes", (json_int_t)f->holes, "moved",
			 (json_int_t)f->moved, "fragmentation", fragmentation(f), "blocks",
			 blocks_json(m));
}

/* ---- of which ranks ---- */

static bool exists(const char *mountpoint, uint32_t rank, const char *file)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/ranks/%" PRIu32 "%s", mountpoint, rank, file);
	return !access(path, F_OK);
}

/* How arenas are shown: printed or, if json is not NULL, appended to it. */
struct showing {
	FILE *to;
	bool ascii;
	json_t *json;
};

static int show(const char *mountpoint, uint32_t rank, const struct showing *s, char *why,
		size_t whysize)
{
	struct map m;
	int rc = read_map(mountpoint, rank, &m, why, whysize);

	if (rc)
		return rc;
	if (!s->json)
		print(&m, s->ascii, s->to);
	else if (json_array_append_new(s->json, map_json(&m)))
		rc = -ENOMEM;
	if (rc)
		snprintf(why, whysize, "%s", strerror(-rc));
	map_free(&m);
	return rc;
}

static int show_all(const char *mountpoint, const struct showing *s, char *why, size_t whysize)
{
	unsigned shown = 0;
	int rc = 0;

	for (uint32_t rank = 0; !rc && exists(mountpoint, rank, ""); rank++) {
		if (!exists(mountpoint, rank, "/arena"))
			continue;
		rc = show(mountpoint, rank, s, why, whysize);
		shown++;
	}
	if (rc || shown)
		return rc;
	snprintf(why, whysize, "%s: no rank of the job has an arena", target_name(mountpoint));
	return -ENOENT;
}

static int show_those(const char *mountpoint, int64_t rank, const struct showing *s, char *why,
		      size_t whysize)
{
	int rc = target_check_rank(mountpoint, rank, why, whysize);

	if (rc)
		return rc;
	if (rank < 0)
		return show_all(mountpoint, s, why, whysize);
	if (!exists(mountpoint, (uint32_t)rank, "/arena")) {
		snprintf(why, whysize, "%s: rank %" PRId64 " has no arena",
			 target_name(mountpoint), rank);
		return -ENOENT;
	}
	return show(mountpoint, (uint32_t)rank, s, why, whysize);
}

int arenas_run(const struct call *call)
{
	struct showing s = { .to = stdout,
			     .ascii = call_has(call, 'a'),
			     .json = call_has(call, 'J') ? json_array() : NULL };
	char mountpoint[TARGET_PATH_MAX], why[PATH_MAX + 200];
	int rc = target_open_word(call, false, mountpoint);

	if (rc)
		return rc;
	setlocale(LC_CTYPE, "");
	s.ascii |= strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
	if (show_those(mountpoint, call_has(call, 'R') ? (int64_t)call->rank : -1, &s, why,
		       sizeof(why))) {
		json_decref(s.json);
		return call_fail("%s", why);
	}
	return s.json ? call_print_object(call, "ranks", s.json) : 0;
}
