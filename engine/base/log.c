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
} journal = { .lock = PTHREAD_MUTEX_INITIALIZER, .level = -1 };

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

static __attribute__((constructor)) void keep_over_fork(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
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

		log_time(now);
		snprintf(journal.lines[journal.count++ % LOG_KEPT], LOG_LINE,
			 "fragfs: %s: %s: %s%s%s\n", level_names[level], now, journal.prefix,
			 between, text);
		if ((int)level <= journal.level)
			fprintf(stderr, "fragfs: %s: %s%s%s\n", level_names[level],
				journal.prefix, between, text);
	}
	pthread_mutex_unlock(&journal.lock);
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
