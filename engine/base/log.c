/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"

#include "engine/base/one-line.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LOG_KEPT = 1024, LOG_TEXT = 240, LOG_LINE = LOG_TEXT + 96 };

static const char *const level_names[] = { "error", "warn", "info", "debug", "trace" };

static struct {
	pthread_mutex_t lock;
	char prefix[48];
	int level; /* -1: not looked up yet */
	uint64_t count;
	char lines[LOG_KEPT][LOG_LINE];
	uint8_t levels[LOG_KEPT];
	uint8_t texts[LOG_KEPT]; /* where the prefix begins in a line */
	bool to_next;            /* stderr gets no lines: log_next has them */
	pthread_cond_t said;     /* signalled for log_next */
} journal = { .lock = PTHREAD_MUTEX_INITIALIZER,
	      .level = -1,
	      .said = PTHREAD_COND_INITIALIZER };

static _Thread_local char reason[LOG_TEXT];

/* A forked child has none of our threads to let go of it. */
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

int log_level_from_name(const char *name, enum log_level *level)
{
	for (size_t i = 0; i < ARRAY_SIZE(level_names); i++) {
		if (!strcmp(name, level_names[i])) {
			*level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int level_from_environment(void)
{
	const char *name = getenv("FRAG_LOG");
	enum log_level level = LOG_WARN;

	if (name && log_level_from_name(name, &level))
		fprintf(stderr,
			"fragfs: warn: FRAG_LOG=%s is none of error, warn, info, debug, "
			"trace\n",
			name);
	return (int)level;
}

void log_set_prefix(const char *prefix)
{
	pthread_mutex_lock(&journal.lock);
	snprintf(journal.prefix, sizeof(journal.prefix), "%s", prefix);
	pthread_mutex_unlock(&journal.lock);
}

void log_set_level(enum log_level level)
{
	pthread_mutex_lock(&journal.lock);
	journal.level = (int)level;
	pthread_mutex_unlock(&journal.lock);
}

void log_time(char out[LOG_TIME_MAX])
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(out, LOG_TIME_MAX, "%lld.%03ld", (long long)now.tv_sec, now.tv_nsec / 1000000);
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char said[LOG_TEXT], text[LOG_TEXT], now[LOG_TIME_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(said, sizeof(said), fmt, ap);
	va_end(ap);
	one_line(said, text, sizeof(text));
	if (level <= LOG_WARN)
		snprintf(reason, sizeof(reason), "%s", text);

	pthread_mutex_lock(&journal.lock);
	if (journal.level < 0)
		journal.level = level_from_environment();
	if ((int)level <= journal.level || level <= LOG_INFO) {
		const char *between = journal.prefix[0] ? ": " : "";
		uint64_t i = journal.count++ % LOG_KEPT;

		log_time(now);
		snprintf(journal.lines[i], LOG_LINE, "fragfs: %s: %s: %s%s%s\n",
			 level_names[level], now, journal.prefix, between, text);
		journal.levels[i] = (uint8_t)level;
		journal.texts[i] = (uint8_t)(strlen("fragfs: : : ") +
					     strlen(level_names[level]) + strlen(now));
		if (journal.to_next)
			pthread_cond_signal(&journal.said);
		else if ((int)level <= journal.level)
			fprintf(stderr, "fragfs: %s: %s%s%s\n", level_names[level],
				journal.prefix, between, text);
	}
	pthread_mutex_unlock(&journal.lock);
}

bool log_divert(bool to_next, uint64_t *count)
{
	bool before;

	pthread_mutex_lock(&journal.lock);
	before = journal.to_next;
	journal.to_next = to_next;
	*count = journal.count;
	pthread_cond_signal(&journal.said);
	pthread_mutex_unlock(&journal.lock);
	return before;
}

/* Returns the number of the next line for log_next; journal.count: there is none yet. */
static uint64_t next_line(uint64_t after)
{
	if (journal.count > LOG_KEPT)
		after = u64_max(after, journal.count - LOG_KEPT); /* others were overwritten */
	while (after < journal.count && journal.levels[after % LOG_KEPT] > journal.level)
		after++;
	return after;
}

bool log_next(uint64_t *after, enum log_level *level, char text[LOG_TEXT_MAX])
{
	uint64_t i;

	pthread_mutex_lock(&journal.lock);
	while ((i = next_line(*after)) == journal.count && journal.to_next)
		pthread_cond_wait(&journal.said, &journal.lock);
	if (i < journal.count) {
		const char *line = journal.lines[i % LOG_KEPT] + journal.texts[i % LOG_KEPT];

		*level = (enum log_level)journal.levels[i % LOG_KEPT];
		snprintf(text, LOG_TEXT_MAX, "%.*s", (int)strcspn(line, "\n"), line);
		*after = i + 1;
	}
	i = i < journal.count;
	pthread_mutex_unlock(&journal.lock);
	return i;
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
	uint64_t first;
	size_t used = 0;

	if (!size)
		return 0;
	pthread_mutex_lock(&journal.lock);
	first = journal.count > LOG_KEPT ? journal.count - LOG_KEPT : 0;
	for (size_t total = 0; first < journal.count; first++) {
		total = 0;
		for (uint64_t i = first; i < journal.count; i++)
			total += strlen(journal.lines[i % LOG_KEPT]);
		if (total < size)
			break;
	}
	for (uint64_t i = first; i < journal.count; i++) {
		size_t length = strlen(journal.lines[i % LOG_KEPT]);

		memcpy(text + used, journal.lines[i % LOG_KEPT], length);
		used += length;
	}
	pthread_mutex_unlock(&journal.lock);
	text[used] = '\0';
	return used;
}
