/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#define NCURSES_WIDECHAR 1

#include "mount-helpers/commands.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/status.h"
#include "mount-helpers/state-file.h"
#include "mount-helpers/target.h"

#include "engine/base/base.h"
#include "engine/base/one-line.h"
#include "engine/base/vec.h"

#include <curses.h>
#include <errno.h>
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

enum {
	HISTORY = 24,
	BAR = 24,
	LINE_MAX_BYTES = 512,
	ESCAPE = 3, /* characters */
	NORMS_MS = 200,
	SECONDS = 1,
	KEY_CTRL_C = 3
};

struct norm_sums {
	double squares;    /* of finite elements; NaN: no norm was read */
	uint64_t nan, inf; /* elements */
	const char *first; /* the first parameter with NaNs or infinities; NULL: none has */
};

/* The norm of a group's states, read parameter by parameter: a look begins where the one before
 * has ended, so that none takes long.
 */
struct group {
	unsigned number;
	char **params; /* NULL at the end */
	size_t next;
	/* of the parameters before next; of all, when the newest norm was made */
	struct norm_sums part, whole;
	double history[HISTORY]; /* of norms, the newest last; NaN: none */
};

struct screen_line {
	char text[LINE_MAX_BYTES];
	bool alarm; /* shown in red */
};

/* Lines of .frag/readers about one process, of all ranks: sums, and the longest times. */
struct shown_reader {
	char host[ESCAPE * 64], program[ESCAPE * 32], mode[4]; /* as the file escapes them */
	uint64_t pid, uid, views, bytes, preserved;
	double seconds, oldest, silent;
};

struct top_sample {
	struct status status;
	char *metrics;
	struct vec readers; /* struct shown_reader */
	double seconds;     /* on the monotonic clock */
	int error;
	char why[256];
};

struct top {
	const char *mountpoint;
	struct vec groups;           /* struct group */
	uint32_t unfinished;         /* the group where the next look at norms begins */
	struct vec lines;            /* struct screen_line */
	struct top_sample now, last; /* last.seconds 0: there was no look before */
	bool utf8;
};

static volatile sig_atomic_t ended;

static void end(int number)
{
	ended = 1;
}

/* ---- looking ---- */

static double clock_seconds(void)
{
	return (double)monotonic_ms() / 1e3;
}

static void look_free(struct top_sample *l)
{
	if (!l->error && l->seconds > 0)
		status_fini(&l->status);
	free(l->metrics);
	free(l->readers.items);
	*l = (struct top_sample){ 0 };
}

/* Reads a value of .frag/metrics: NAME or NAME{rank="R"}. */
static double metric(const struct top_sample *l, const char *name, int64_t rank)
{
	char start[128];
	const char *at = l->metrics;
	size_t length;

	if (rank < 0)
		snprintf(start, sizeof(start), "%s ", name);
	else
		snprintf(start, sizeof(start), "%s{rank=\"%" PRId64 "\"} ", name, rank);
	length = strlen(start);
	for (; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
		if (!strncmp(at, start, length))
			return strtod(at + length, NULL);
	return 0;
}

/* A line of a table, and the names of its columns. */
struct named_fields {
	char *names[LISTING_FIELDS_MAX], *fields[LISTING_FIELDS_MAX];
	size_t n;
};

static const char *field(const struct named_fields *f, const char *name)
{
	return listing_find(f->names, f->fields, f->n, name);
}

static uint64_t whole(const struct named_fields *f, const char *name)
{
	return strtoull(field(f, name), NULL, 10);
}

static double real(const struct named_fields *f, const char *name)
{
	return strtod(field(f, name), NULL);
}

/* Returns the process's reader, a new one if there was no line about it; NULL: no memory. */
static struct shown_reader *find_reader(struct vec *readers, const struct named_fields *line)
{
	const char *host = field(line, "host");
	uint64_t pid = whole(line, "pid");
	struct shown_reader *list = readers->items, *r;

	for (uint32_t i = 0; i < readers->count; i++)
		if (list[i].pid == pid &&
		    !strncmp(list[i].host, host, sizeof(list[i].host) - 1))
			return &list[i];
	r = vec_add(readers, sizeof(*r));
	if (!r)
		return NULL;
	*r = (struct shown_reader){ .pid = pid, .uid = whole(line, "uid") };
	snprintf(r->host, sizeof(r->host), "%s", host);
	snprintf(r->program, sizeof(r->program), "%s", field(line, "program"));
	snprintf(r->mode, sizeof(r->mode), "%s", field(line, "mode"));
	return r;
}

static void add_reader(struct vec *readers, const struct named_fields *line)
{
	struct shown_reader *r = find_reader(readers, line);

	if (!r)
		return;
	r->views += whole(line, "views");
	r->bytes += whole(line, "bytes");
	r->preserved += whole(line, "preserved");
	r->seconds = fmax(r->seconds, real(line, "seconds"));
	r->oldest = fmax(r->oldest, real(line, "oldest"));
	r->silent = fmax(r->silent, real(line, "silent"));
}

/* Readers stay unknown where no rank answers. */
static void read_readers(const char *mountpoint, struct vec *readers)
{
	struct named_fields of;
	char *text, *rest, *line;
	size_t n;

	if (mount_file_read(mountpoint, ".frag/readers", &text))
		return;
	rest = text;
	line = strsep(&rest, "\n");
	n = listing_cut(line, of.names);
	while ((line = strsep(&rest, "\n")) && *line) {
		of.n = listing_cut(line, of.fields);
		if (of.n == n)
			add_reader(readers, &of);
	}
	free(text);
}

static void look(struct top *top)
{
	look_free(&top->last);
	top->last = top->now;
	top->now = (struct top_sample){ .seconds = clock_seconds() };
	top->now.error = status_of_mount(&top->now.status, top->mountpoint, top->mountpoint,
					 top->now.why, sizeof(top->now.why));
	if (mount_file_read(top->mountpoint, ".frag/metrics", &top->now.metrics))
		top->now.metrics = NULL;
	read_readers(top->mountpoint, &top->now.readers);
}

/* ---- norms of groups ---- */

static int find_groups(struct top *top)
{
	for (unsigned number = 0;; number++) {
		struct group *g;
		char path[64], **params;

		snprintf(path, sizeof(path), "groups/%u/params", number);
		params = params_names(top->mountpoint, path);
		if (!params && errno == ENOENT)
			return 0;
		if (!params)
			return call_fail("%s: %s", path, strerror(errno));
		g = vec_add(&top->groups, sizeof(*g));
		if (!g) {
			params_free_names(params);
			return call_fail("%s", strerror(ENOMEM));
		}
		*g = (struct group){ .number = number, .params = params, .part.squares = NAN };
		for (int i = 0; i < HISTORY; i++)
			g->history[i] = NAN;
	}
}

/* Returns the JSON of stats/STATE/all, a new reference; NULL: it could not be read. */
static json_t *read_stats(const struct top *top, const char *param)
{
	char path[PATH_MAX], *text = NULL;
	struct param p = { .name = (char *)param };
	const char *state;
	json_t *all = NULL;
	char **states;

	snprintf(path, sizeof(path), "params/%s", param);
	p.path = path;
	states = params_states(top->mountpoint, &p);
	state = states ? state_file_main(states) : NULL;
	snprintf(path, sizeof(path), "params/%s/stats/%s/all", param, state ? state : "");
	params_free_names(states);
	if (state && !mount_file_read(top->mountpoint, path, &text))
		all = json_loads(text, 0, NULL);
	free(text);
	return all;
}

static void add_stats(struct norm_sums *to, const char *param, const json_t *all)
{
	json_t *norm = json_object_get(all, "norm"); /* null: no element is finite */
	uint64_t nan = (uint64_t)json_integer_value(json_object_get(all, "nan"));
	uint64_t inf = (uint64_t)json_integer_value(json_object_get(all, "inf"));

	if (json_is_number(norm))
		to->squares = (isnan(to->squares) ? 0 : to->squares) +
			      json_number_value(norm) * json_number_value(norm);
	if ((nan || inf) && !to->first)
		to->first = param;
	to->nan += nan;
	to->inf += inf;
}

/* Adds parameters until the group is done, and returns true, or the time is over: false.  A
 * group without parameters gets no norm.
 */
static bool go_on(const struct top *top, struct group *g, uint64_t until_ms)
{
	while (g->params[g->next] && monotonic_ms() < until_ms) {
		const char *param = g->params[g->next++];
		json_t *all = read_stats(top, param);

		add_stats(&g->part, param, all);
		json_decref(all);
	}
	if (g->params[g->next])
		return false;
	if (!g->next)
		return true;
	memmove(g->history, g->history + 1, (HISTORY - 1) * sizeof(*g->history));
	g->history[HISTORY - 1] = sqrt(g->part.squares);
	g->whole = g->part;
	g->part = (struct norm_sums){ .squares = NAN };
	g->next = 0;
	return true;
}

/* Looks at each group once, beginning with the group that the last look has not finished. */
static void look_at_norms(struct top *top, uint64_t budget_ms)
{
	uint64_t until = monotonic_ms() + budget_ms;
	struct group *groups = top->groups.items;

	for (uint32_t n = 0; n < top->groups.count; n++) {
		if (!go_on(top, &groups[top->unfinished], until))
			return;
		top->unfinished = (top->unfinished + 1) % top->groups.count;
	}
}

/* ---- lines ---- */

static void put(struct top *top, bool alarm, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void put(struct top *top, bool alarm, const char *format, ...)
{
	struct screen_line *line = vec_add(&top->lines, sizeof(*line));
	va_list list;

	if (!line)
		return;
	line->alarm = alarm;
	va_start(list, format);
	vsnprintf(line->text, sizeof(line->text), format, list);
	va_end(list);
}

/* Returns how much a counter of .frag/metrics grows in a second; 0: a look could not read the
 * counter, or a new process of fragfs counts from 0.
 */
static double rate(const struct top *top, const char *name)
{
	double seconds = top->now.seconds - top->last.seconds;

	if (!top->now.metrics || !top->last.metrics || seconds <= 0)
		return 0;
	return fmax(0, (metric(&top->now, name, -1) - metric(&top->last, name, -1)) / seconds);
}

static double step_rate(const struct top *top)
{
	double seconds = top->now.seconds - top->last.seconds;

	return top->last.seconds > 0 && !top->last.error && seconds > 0
		       ? ((double)top->now.status.step - (double)top->last.status.step) /
				 seconds
		       : 0;
}

static void put_head(struct top *top)
{
	const struct status *s = &top->now.status;
	uint32_t alive = 0;
	char bytes[16];

	for (uint32_t rank = 0; rank < s->nranks; rank++)
		alive += s->ranks[rank].state == ENGINE_RANK_ALIVE;
	put(top, alive < s->nranks,
	    "job %s  step %" PRIu64 "  %.4g steps/s  phase %s  generation %" PRIu64
	    "  %u of %u ranks",
	    *s->job ? s->job : "-", s->step, step_rate(top), s->phase, s->generation, alive,
	    s->nranks);
	put(top, s->nwaiting > 0,
	    "this mount  reads %.0f/s, %s/s  %" PRIu64 " of them wait  edits %.0f, %" PRIu64
	    " of them wait",
	    rate(top, "fragfs_reads_total"),
	    listing_size((uint64_t)rate(top, "fragfs_read_bytes_total"), bytes), s->nwaiting,
	    metric(&top->now, "fragfs_commits_total", -1), s->nediting);
}

static void put_ranks(struct top *top)
{
	const struct status *s = &top->now.status;
	static const char *const states[] = { [ENGINE_RANK_UNKNOWN] = "unknown",
					      [ENGINE_RANK_ALIVE] = "alive",
					      [ENGINE_RANK_LOST] = "lost",
					      [ENGINE_RANK_LEFT] = "left" };

	put(top, false, "%6s  %-16s %-7s %-7s %10s %9s %8s %8s %8s %9s %8s", "RANK", "HOST",
	    "STATE", "PHASE", "STEP", "STANDS", "HOST", "NVME", "DEVICE", "PRESERVED", "HELD");
	for (uint32_t rank = 0; rank < s->nranks; rank++) {
		const struct engine_rank *r = &s->ranks[rank];
		char host[16], swap[16], device[16], kept[16];
		double preserved = metric(&top->now, "fragfs_rank_kept_bytes_total", rank);

		put(top, r->state == ENGINE_RANK_LOST,
		    "%6" PRIu32 "  %-16.16s %-7s %-7s %10" PRIu64 " %7.1f s %8s %8s %8s %9s "
		    "%6.1f s",
		    rank, r->host, states[r->state], r->phase ? r->phase : "-", r->step,
		    (double)r->boundary_ms / 1e3, listing_size(r->bytes_host, host),
		    listing_size(r->bytes_swap, swap), listing_size(r->bytes_device, device),
		    listing_size((uint64_t)preserved, kept),
		    metric(&top->now, "fragfs_rank_held_seconds_total", rank));
	}
}

static void put_readers(struct top *top)
{
	const struct shown_reader *readers = top->now.readers.items;
	char bytes[16], preserved[16];

	if (!top->now.readers.count)
		return;
	put(top, false, "%-16s %8s  %-16s %-4s %9s %8s %8s %9s %8s %8s", "READER", "PID",
	    "PROGRAM", "MODE", "SINCE", "VIEWS", "BYTES", "PRESERVED", "OLDEST", "SILENT");
	for (uint32_t i = 0; i < top->now.readers.count; i++) {
		const struct shown_reader *r = &readers[i];

		put(top, false,
		    "%-16.16s %8" PRIu64 "  %-16.16s %-4s %7.0f s %8" PRIu64
		    " %8s %9s %6.1f s %6.1f s",
		    r->host, r->pid, r->program, r->mode, r->seconds, r->views,
		    listing_size(r->bytes, bytes), listing_size(r->preserved, preserved),
		    r->oldest, r->silent);
	}
	put(top, false, "%s", "");
}

/* Returns which of `parts` equal parts of [low, high] the value is in; the last part if the
 * value is not finite.
 */
static int part(double value, double low, double high, int parts)
{
	if (!isfinite(value))
		return parts;
	return high > low ? (int)((value - low) / (high - low) * parts) : 0;
}

/* Writes a bar, and the history as heights between the least and the greatest finite norm. */
static void draw(const struct top *top, const struct group *g, double greatest, char *bar,
		 char *history)
{
	static const char heights[] = "▁▂▃▄▅▆▇█"; /* three bytes each */
	/* in halves of a character, so that the bar is rounded */
	int halves = part(g->history[HISTORY - 1], 0, greatest, 2 * BAR);
	double low = NAN, high = NAN;

	*bar = *history = '\0';
	for (int i = 0; i < BAR; i++)
		bar = stpcpy(bar, 2 * i < halves ? (top->utf8 ? "█" : "#") : " ");
	for (int i = 0; i < HISTORY; i++) {
		if (!isfinite(g->history[i]))
			continue;
		low = fmin(low, g->history[i]);
		high = fmax(high, g->history[i]);
	}
	for (int i = 0; i < HISTORY; i++) {
		int height = part(g->history[i], low, high, 7);

		if (isnan(g->history[i]))
			history = stpcpy(history, " ");
		else if (top->utf8)
			history = stpncpy(history, heights + (size_t)3 * height, 3),
			*history = '\0';
		else
			*history++ = "_.,-~=*#"[height], *history = '\0';
	}
}

/* Writes how many elements are not finite; "": all are. */
static void put_not_finite(const struct norm_sums *s, char *text, size_t size)
{
	int length = 0;

	*text = '\0';
	if (s->nan)
		length = snprintf(text, size, "  %" PRIu64 " NaN", s->nan);
	if (s->inf)
		length += snprintf(text + length, size - (size_t)length, "  %" PRIu64 " inf",
				   s->inf);
	if (!s->first)
		return;
	length += snprintf(text + length, size - (size_t)length, ", first ");
	one_line(s->first, text + length, size - (size_t)length);
}

static void put_groups(struct top *top)
{
	char not_finite[LINE_MAX_BYTES / 2];
	const struct group *groups = top->groups.items;
	char bar[4 * BAR + 1], history[4 * HISTORY + 1];
	double greatest = 0;

	for (uint32_t i = 0; i < top->groups.count; i++)
		if (isfinite(groups[i].history[HISTORY - 1]))
			greatest = fmax(greatest, groups[i].history[HISTORY - 1]);
	if (top->groups.count)
		put(top, false, "%6s  %12s", "GROUP", "NORM");
	for (uint32_t i = 0; i < top->groups.count; i++) {
		const struct norm_sums *s = &groups[i].whole;

		put_not_finite(s, not_finite, sizeof(not_finite));
		if (isnan(groups[i].history[HISTORY - 1])) {
			put(top, s->first, "%6u  %12s%s", groups[i].number, "-", not_finite);
			continue;
		}
		draw(top, &groups[i], greatest, bar, history);
		put(top, s->first, "%6u  %12.6g  |%s|  %s%s", groups[i].number,
		    groups[i].history[HISTORY - 1], bar, history, not_finite);
	}
}

static void make_lines(struct top *top)
{
	top->lines.count = 0;
	if (top->now.error) {
		put(top, true, "%s", top->now.why);
		return;
	}
	put_head(top);
	put(top, false, "%s", "");
	put_ranks(top);
	put(top, false, "%s", "");
	put_readers(top);
	put_groups(top);
}

/* ---- showing ---- */

static json_t *reader_json(const struct shown_reader *r)
{
	return json_pack("{s:o s:I s:I s:o s:s s:f s:I s:I s:I s:f s:f}", "host",
			 one_line_json(r->host), "pid", (json_int_t)r->pid, "uid",
			 (json_int_t)r->uid, "program", one_line_json(r->program), "mode",
			 r->mode, "seconds", r->seconds, "views", (json_int_t)r->views, "bytes",
			 (json_int_t)r->bytes, "preserved", (json_int_t)r->preserved, "oldest",
			 r->oldest, "silent", r->silent);
}

static json_t *readers_json(const struct vec *readers)
{
	const struct shown_reader *list = readers->items;
	json_t *all = json_array();

	for (uint32_t i = 0; i < readers->count; i++)
		json_array_append_new(all, reader_json(&list[i]));
	return all;
}

static json_t *to_json(struct top *top)
{
	const struct group *groups = top->groups.items;
	json_t *list = json_array();

	for (uint32_t i = 0; i < top->groups.count; i++)
		json_array_append_new(
			list,
			json_pack("{s:i s:o s:I s:I}", "group", (int)groups[i].number, "norm",
				  isfinite(groups[i].history[HISTORY - 1])
					  ? json_real(groups[i].history[HISTORY - 1])
					  : json_null(),
				  "nan", (json_int_t)groups[i].whole.nan, "inf",
				  (json_int_t)groups[i].whole.inf));
	return json_pack("{s:o s:f s:o s:o}", "status", status_json(&top->now.status),
			 "steps_per_s", step_rate(top), "readers",
			 readers_json(&top->now.readers), "groups", list);
}

/* Shows one look.  There are two looks, because rates are of the time between them. */
static int show_once(const struct call *call, struct top *top)
{
	look(top);
	if (!top->now.error) {
		sleep(call->seconds ? call->seconds : SECONDS);
		look(top);
	}
	if (top->now.error)
		return call_fail("%s", top->now.why);
	look_at_norms(top, UINT32_MAX);
	if (call_has(call, 'J'))
		return call_print_object(call, "top", to_json(top));
	make_lines(top);
	for (uint32_t i = 0; i < top->lines.count; i++)
		puts(((struct screen_line *)top->lines.items)[i].text);
	return 0;
}

/* Converts as much of text as fits.  Bytes that are no character in the locale, as names may
 * have, are written as "%C3".
 */
static void to_wide(const char *text, wchar_t *out, size_t size)
{
	size_t left = strlen(text), used = 0;
	mbstate_t state = { 0 };

	while (left && used + ESCAPE < size) {
		size_t length = mbrtowc(&out[used], text, left, &state);

		if (length <= left) {
			used++;
		} else {
			swprintf(&out[used], ESCAPE + 1, L"%%%02X", (unsigned char)*text);
			used += ESCAPE;
			length = 1;
			state = (mbstate_t){ 0 };
		}
		text += length;
		left -= length;
	}
	out[used] = L'\0';
}

static void draw_screen(const struct top *top, unsigned *first)
{
	const struct screen_line *lines = top->lines.items;
	wchar_t text[LINE_MAX_BYTES];
	unsigned last =
		top->lines.count > (unsigned)LINES ? top->lines.count - (unsigned)LINES : 0;

	*first = *first < last ? *first : last;
	erase();
	for (unsigned i = 0; i < (unsigned)LINES && *first + i < top->lines.count; i++) {
		if (lines[*first + i].alarm)
			attron(A_BOLD | (has_colors() ? COLOR_PAIR(1) : 0));
		to_wide(lines[*first + i].text, text, ARRAY_SIZE(text));
		mvaddnwstr((int)i, 0, text, COLS);
		attrset(A_NORMAL);
	}
	refresh();
}

/* Returns false if the key ends the program. */
static bool take_key(int key, unsigned *first)
{
	switch (key) {
	case 'q':
	case KEY_CTRL_C:
		return false;
	case KEY_DOWN:
		++*first;
		break;
	case KEY_UP:
		*first -= *first > 0;
		break;
	case KEY_NPAGE:
		*first += (unsigned)LINES;
		break;
	case KEY_PPAGE:
		*first -= *first < (unsigned)LINES ? *first : (unsigned)LINES;
		break;
	default:
		break;
	}
	return true;
}

/* Shows looks until a key or a signal ends the loop, which restores the terminal.  Ctrl-C comes
 * as a key.
 */
static void show_until_quit(const struct call *call, struct top *top)
{
	struct sigaction action = { .sa_handler = end };
	uint64_t every = 1000ULL * (call->seconds ? call->seconds : SECONDS), due = 0;
	unsigned first = 0;

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	initscr();
	raw();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	if (has_colors()) {
		start_color();
		use_default_colors();
		init_pair(1, COLOR_RED, -1);
	}
	do {
		uint64_t now = monotonic_ms();

		if (now >= due) {
			look(top);
			look_at_norms(top, NORMS_MS);
			make_lines(top);
			due = monotonic_ms() + every;
			now = monotonic_ms();
		}
		draw_screen(top, &first);
		timeout((int)(due - now));
	} while (!ended && take_key(getch(), &first));
	endwin();
}

int top_run(const struct call *call)
{
	bool once = call_has(call, 'c') || call_has(call, 'J');
	char mountpoint[TARGET_PATH_MAX];
	struct top top = { .mountpoint = mountpoint };
	struct group *groups;
	int rc = 0;

	if (!once && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)))
		return call_fail("top needs a terminal; without one: fragctl top --once");
	rc = target_open(call->job, false, mountpoint);
	if (rc)
		return rc;
	setlocale(LC_ALL, "");
	setlocale(LC_NUMERIC, "C");
	top.utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8") && !call_has(call, 'a');
	rc = target_is_checkpoint(mountpoint)
		     ? call_fail("%s: a checkpoint is mounted there, not a job",
				 target_name(mountpoint))
		     : find_groups(&top);
	if (!rc && once)
		rc = show_once(call, &top);
	else if (!rc)
		show_until_quit(call, &top);
	look_free(&top.now);
	look_free(&top.last);
	groups = top.groups.items;
	for (uint32_t i = 0; i < top.groups.count; i++)
		params_free_names(groups[i].params);
	free(top.groups.items);
	free(top.lines.items);
	return rc;
}
