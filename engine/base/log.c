/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"

#include "engine/base/cpus.h"
#include "engine/base/log-syslog.h"
#include "engine/base/one-line.h"
#include "engine/frag.h"

#include <ctype.h>
#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LOG_KEPT = 1024, LOG_LINE = LOG_TEXT + 128 };

static const char *const level_names[] = { "error", "warn", "info", "debug", "trace" };

/* The words of FRAG_LOG. */
struct words {
	int level; /* -1: not looked up yet */
	bool time, place, json;
	bool ranks; /* lines above warn are shown of the ranks in journal.listed alone */
};

static struct {
	pthread_mutex_t lock;
	int64_t rank;
	struct words words;
	uint64_t listed[FRAG_WORLD_MAX / 64]; /* a bit for each rank */
	int shown; /* the level up to which lines are shown: that of words, or less */
	bool to_syslog;
	uint64_t count;
	uint8_t levels[LOG_KEPT];
	uint8_t texts[LOG_KEPT]; /* where the rank begins in a line */
	bool to_next;            /* stderr gets no lines: log_next has them */
	uint64_t end;            /* number of the first line that went to stderr again */
	pthread_cond_t said;     /* signalled for log_next */
} journal = { .lock = PTHREAD_MUTEX_INITIALIZER,
	      .rank = LOG_NO_RANK,
	      .words.level = -1,
	      .said = PTHREAD_COND_INITIALIZER };
/* Not in struct journal, whose initializer would put all these bytes into the library's file.
 */
static char journal_lines[LOG_KEPT][LOG_LINE];

/* LOG_TRACE: all lines come to log_put until FRAG_LOG was looked up */
_Atomic int log_most = LOG_TRACE;

static _Thread_local char reason[LOG_TEXT];

/* Holds the lock over fork: a forked child has no thread that would release it. */
static void before_fork(void)
{
	pthread_mutex_lock(&journal.lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&journal.lock);
}

/* The child has no thread in log_next. */
static void after_fork_in_child(void)
{
	journal.to_next = false;
	pthread_cond_init(&journal.said, NULL);
	after_fork();
}

static __attribute__((constructor)) void keep_over_fork(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---- FRAG_LOG ---- */

/* Under journal.lock, as all of this part. */
static bool is_listed(int64_t rank)
{
	return rank < FRAG_WORLD_MAX && journal.listed[rank / 64] >> rank % 64 & 1;
}

static void use(const struct words *words)
{
	bool other = words->ranks && journal.rank != LOG_NO_RANK && !is_listed(journal.rank);

	journal.words = *words;
	journal.shown = other && words->level > LOG_WARN ? LOG_WARN : words->level;
	atomic_store_explicit(&log_most, journal.shown > LOG_INFO ? journal.shown : LOG_INFO,
			      memory_order_relaxed);
}

static bool take_range(struct words *w, const char *text)
{
	unsigned first, last;

	if (!cpus_range(&text, FRAG_WORLD_MAX, &first, &last) || first > last)
		return false;
	w->ranks = true;
	for (unsigned rank = first; rank <= last; rank++)
		journal.listed[rank / 64] |= UINT64_C(1) << rank % 64;
	return true;
}

static bool take_word(struct words *w, const char *word, bool *in_ranks)
{
	bool begins = !strncmp(word, "ranks=", 6);

	if (begins || (*in_ranks && isdigit((unsigned char)*word))) {
		*in_ranks = true;
		return take_range(w, begins ? word + 6 : word);
	}
	*in_ranks = false;
	for (size_t i = 0; i < ARRAY_SIZE(level_names); i++) {
		if (!strcmp(word, level_names[i])) {
			w->level = (int)i;
			return true;
		}
	}
	w->time |= !strcmp(word, "time");
	w->place |= !strcmp(word, "place");
	w->json |= !strcmp(word, "json");
	return !strcmp(word, "time") || !strcmp(word, "place") || !strcmp(word, "json");
}

/* Returns the first wrong word, which the caller frees; NULL: none is. */
static char *parse(struct words *w, const char *text)
{
	static const char between[] = ", \t";
	bool in_ranks = false;
	size_t length;

	for (text += strspn(text, between); *text;
	     text += length + strspn(text + length, between)) {
		char *word;

		length = strcspn(text, between);
		word = strndup(text, length);
		if (!word || !take_word(w, word, &in_ranks))
			return word;
		free(word);
	}
	return NULL;
}

/* Looks FRAG_LOG up, once. */
static void look_up(void)
{
	struct words words = { .level = LOG_WARN };
	CLEANUP(free) char *wrong = NULL;
	const char *text;

	if (journal.words.level >= 0)
		return;
	text = env_text("FRAG_LOG");
	wrong = text ? parse(&words, text) : NULL;
	if (wrong)
		fprintf(stderr,
			"fragfs: warn: FRAG_LOG=%s: \"%s\" is none of error, warn, info, "
			"debug, trace, ranks=LIST, time, place, json\n",
			text, wrong);
	use(wrong ? &(struct words){ .level = LOG_WARN } : &words);
}

void log_set_rank(int64_t rank)
{
	pthread_mutex_lock(&journal.lock);
	look_up();
	journal.rank = rank;
	use(&journal.words);
	pthread_mutex_unlock(&journal.lock);
}

/* ---- a line ---- */

void log_open_syslog(void)
{
	log_syslog_open();
}

void log_to_syslog(void)
{
	pthread_mutex_lock(&journal.lock);
	journal.to_syslog = true;
	pthread_mutex_unlock(&journal.lock);
}

static void format_time(char out[LOG_TIME_MAX], const struct timespec *at)
{
	snprintf(out, LOG_TIME_MAX, "%lld.%03ld", (long long)at->tv_sec, at->tv_nsec / 1000000);
}

void log_time(char out[LOG_TIME_MAX])
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	format_time(out, &now);
}

struct line {
	enum log_level level;
	const char *place, *text;
	struct timespec at;
	char time[LOG_TIME_MAX]; /* of `at` */
};

static char *json_line(const struct line *l)
{
	/* Not by strtod, which the trainer's locale may let end at the point. */
	double seconds = (double)l->at.tv_sec + (double)(l->at.tv_nsec / 1000000) / 1000;
	json_t *line =
		json_pack("{s:f,s:s,s:s,s:o}", "time", seconds, "level", level_names[l->level],
			  "place", l->place, "text", one_line_json(l->text));
	char *text;

	if (journal.rank != LOG_NO_RANK)
		json_object_set_new(line, "rank", json_integer(journal.rank));
	text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(13));
	json_decref(line);
	return text;
}

/* Writes rank, place and text, as far as a line has them. */
static void put_rest(const struct line *l, char *out, size_t size)
{
	bool has_place = journal.words.place || l->level >= LOG_DEBUG;
	char rank[32] = "";

	if (journal.rank != LOG_NO_RANK)
		snprintf(rank, sizeof(rank), "rank %lld: ", (long long)journal.rank);
	snprintf(out, size, "%s%s%s%s", rank, has_place ? l->place : "", has_place ? ": " : "",
		 l->text);
}

static void show(const struct line *l, const char *rest)
{
	bool has_time = journal.words.time;
	CLEANUP(free) char *json = journal.words.json ? json_line(l) : NULL;

	if (journal.to_syslog)
		log_syslog_send((int)l->level, json ? json : rest);
	else if (json)
		fprintf(stderr, "%s\n", json);
	else
		fprintf(stderr, "fragfs: %s: %s%s%s\n", level_names[l->level],
			has_time ? l->time : "", has_time ? ": " : "", rest);
}

/* Keeps a line for .frag/log and log_next.  Under journal.lock. */
static void keep(const struct line *l, const char *rest)
{
	uint64_t i = journal.count++ % LOG_KEPT;
	int begin = snprintf(journal_lines[i], LOG_LINE,
			     "fragfs: %s: %s: ", level_names[l->level], l->time);

	snprintf(journal_lines[i] + begin, LOG_LINE - (size_t)begin, "%s\n", rest);
	journal.levels[i] = (uint8_t)l->level;
	journal.texts[i] = (uint8_t)begin;
}

void log_put(enum log_level level, const char *place, const char *fmt, ...)
{
	char said[LOG_TEXT], text[LOG_TEXT], rest[LOG_TEXT_MAX];
	struct line line = { .level = level, .place = place, .text = text };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(said, sizeof(said), fmt, ap);
	va_end(ap);
	one_line(said, text, sizeof(text));
	if (level <= LOG_WARN)
		snprintf(reason, sizeof(reason), "%s", text);

	pthread_mutex_lock(&journal.lock);
	look_up();
	if (log_wants(level)) {
		clock_gettime(CLOCK_REALTIME, &line.at);
		format_time(line.time, &line.at);
		put_rest(&line, rest, sizeof(rest));
		keep(&line, rest);
		if (journal.to_next)
			pthread_cond_signal(&journal.said);
		else if ((int)level <= journal.shown)
			show(&line, rest);
	}
	pthread_mutex_unlock(&journal.lock);
}

bool log_divert(bool to_next, uint64_t *count)
{
	bool before;

	pthread_mutex_lock(&journal.lock);
	before = journal.to_next;
	journal.to_next = to_next;
	*count = journal.end = journal.count;
	pthread_cond_signal(&journal.said);
	pthread_mutex_unlock(&journal.lock);
	return before;
}

/* Finds the next line for log_next, and stores its number.  false: there is none yet. */
static bool find_line(uint64_t *number)
{
	uint64_t end = journal.to_next ? journal.count : journal.end;

	if (journal.count > LOG_KEPT) /* older lines were overwritten */
		*number = u64_max(*number, journal.count - LOG_KEPT);
	while (*number < end && journal.levels[*number % LOG_KEPT] > journal.shown)
		++*number;
	return *number < end;
}

bool log_next(uint64_t *after, enum log_level *level, char text[LOG_TEXT_MAX])
{
	bool found;

	pthread_mutex_lock(&journal.lock);
	while (!(found = find_line(after)) && journal.to_next)
		pthread_cond_wait(&journal.said, &journal.lock);
	if (found) {
		uint64_t i = (*after)++ % LOG_KEPT;
		const char *line = journal_lines[i] + journal.texts[i];

		*level = (enum log_level)journal.levels[i];
		snprintf(text, LOG_TEXT_MAX, "%.*s", (int)strcspn(line, "\n"), line);
	}
	pthread_mutex_unlock(&journal.lock);
	return found;
}

const char *log_take_reason(void)
{
	static _Thread_local char taken[sizeof(reason)];

	memcpy(taken, reason, sizeof(taken));
	reason[0] = '\0';
	return taken;
}

size_t log_tail(char *text, size_t size)
{
	uint64_t first, oldest;
	size_t used = 0;

	if (!size)
		return 0;
	pthread_mutex_lock(&journal.lock);
	oldest = journal.count > LOG_KEPT ? journal.count - LOG_KEPT : 0;
	first = journal.count;
	for (size_t total = 0; first > oldest; first--) {
		total += strlen(journal_lines[(first - 1) % LOG_KEPT]);
		if (total >= size)
			break;
	}
	for (uint64_t i = first; i < journal.count; i++) {
		size_t length = strlen(journal_lines[i % LOG_KEPT]);

		memcpy(text + used, journal_lines[i % LOG_KEPT], length);
		used += length;
	}
	pthread_mutex_unlock(&journal.lock);
	text[used] = '\0';
	return used;
}

char *log_text(void)
{
	enum { ALL = LOG_KEPT * LOG_LINE + 1 };
	char *text = malloc(ALL);

	if (text)
		log_tail(text, ALL);
	return text;
}
