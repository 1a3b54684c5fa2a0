/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_LOG_H
#define ENGINE_BASE_LOG_H

/* The log: one line an event, "fragfs: warn: rank 3: ...", with control characters escaped
 * (engine/base/one-line.h).  FRAG_LOG has words, between commas or blanks:
 *
 *   error, warn, info, debug, trace   lines up to this level are shown; default warn
 *   ranks=0,2-4    of a rank not in the list those up to warn alone are shown
 *   time, place    lines on stderr have the time, all lines the line of the source
 *   json           lines on stderr or in syslog are JSON objects: time, level, rank, place,
 *                  text
 *
 *   fragfs: debug: 1795239412.400: rank 3: serve.c:120: ...
 *           level  time            rank    place        text
 *
 * Shown lines go to stderr, to syslog or to log_next.  Lines of level debug and trace have
 * their place always.  The newest lines are kept for .frag/log, up to level info at the least,
 * each with its time in seconds since 1970, as events have it.  Any thread.
 */

#include "engine/base/base.h"

#include <stdatomic.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

/* The rank that this process is, which its lines begin with; LOG_NO_RANK: none. */
enum { LOG_NO_RANK = -1 };
void log_set_rank(int64_t rank);

/* Connects to syslog, so that log_to_syslog works in a process that may not connect later. */
void log_open_syslog(void);
/* Lets shown lines go to syslog(3) in place of stderr, for good. */
void log_to_syslog(void);

/* Lets lines go to log_next in place of stderr, or to stderr again.  Stores the number of lines
 * so far, and returns true if they went to log_next so far.  A forked child's lines go to
 * stderr.
 */
bool log_divert(bool to_next, uint64_t *count);
/* Bytes to which a line's text is cut, and room for it with rank and place. */
enum { LOG_TEXT = 240, LOG_TEXT_MAX = LOG_TEXT + 64 };
/* Waits for the next shown line from number *after on, copies its rank, place and text, and
 * sets *after behind it.
 * false: lines go to stderr now, and all lines before were copied.
 */
bool log_next(uint64_t *after, enum log_level *level, char text[LOG_TEXT_MAX]);

/* Returns the calling thread's newest line of level error or warn since it last called this,
 * without level, rank and place; "": none.  The text stays until the next call.
 */
const char *log_take_reason(void);

/* Writes the time now as the kept lines have it. */
enum { LOG_TIME_MAX = 32 };
void log_time(char out[LOG_TIME_MAX]);

extern _Atomic int log_most; /* the level up to which lines are kept or shown */

static inline bool log_wants(enum log_level level)
{
	return (int)level <= atomic_load_explicit(&log_most, memory_order_relaxed);
}

void log_put(enum log_level level, const char *place, const char *fmt, ...) PRINTF(3, 4);

#define LOG_STRING_(x) #x
#define LOG_STRING(x) LOG_STRING_(x)
#define LOG_PLACE __FILE_NAME__ ":" LOG_STRING(__LINE__)

/* Logs a line.  The arguments are evaluated only if somebody wants the level. */
#define log_line(level, ...)                                                                   \
	do {                                                                                   \
		if (log_wants(level))                                                          \
			log_put(level, LOG_PLACE, __VA_ARGS__);                                \
	} while (0)
/* Logs once in the life of the process, whatever the arguments are. */
#define log_once(level, ...)                                                                   \
	do {                                                                                   \
		static _Atomic bool logged_;                                                   \
		if (log_wants(level) &&                                                        \
		    !atomic_exchange_explicit(&logged_, true, memory_order_relaxed))           \
			log_put(level, LOG_PLACE, __VA_ARGS__);                                \
	} while (0)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_trace(...) log_line(LOG_TRACE, __VA_ARGS__)

/* Copies the newest kept lines, oldest first, whole lines only, as a NUL-terminated text
 * of less than size bytes.  Returns its length.
 */
size_t log_tail(char *text, size_t size);
/* Returns all kept lines, which the caller frees.  NULL: no memory. */
char *log_text(void);

#endif
