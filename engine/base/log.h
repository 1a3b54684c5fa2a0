/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_LOG_H
#define ENGINE_BASE_LOG_H

/* The log: one line an event, "fragfs: warn: rank 3: ...", with control characters escaped
 * (engine/base/one-line.h).  stderr gets the lines up to the level of FRAG_LOG (error, warn,
 * info, debug, trace; default warn).  The newest lines are kept for .frag/log, up to level info
 * at the least, each with its time in seconds since 1970, as events have it:
 * "fragfs: warn: 1795239412.400: rank 3: ...".  Any thread.
 */

#include "engine/base/base.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

/* Sets the text before each message, such as "rank 3"; it is copied, at most 47 characters. */
void log_set_prefix(const char *prefix);
void log_set_level(enum log_level level);

/* -EINVAL: no such level name. */
int log_level_from_name(const char *name, enum log_level *level);

void log_line(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

/* Lets lines go to log_next in place of stderr, or to stderr again.  Stores how many lines
 * there were until now, and returns where they went until now.  A forked child's go to stderr.
 */
bool log_divert(bool to_next, uint64_t *count);
enum { LOG_TEXT_MAX = 240 + 48 };
/* Waits for the line after *after, up to the level of stderr's, and copies its prefix and text.
 * false: lines go to stderr now, and all that were said before were copied.
 */
bool log_next(uint64_t *after, enum log_level *level, char text[LOG_TEXT_MAX]);

/* Returns the calling thread's newest line of level error or warn since it last called this,
 * without level and prefix; "": none.  The text stays until the next call.
 */
const char *log_take_reason(void);

/* Writes the time now as the kept lines have it. */
enum { LOG_TIME_MAX = 32 };
void log_time(char out[LOG_TIME_MAX]);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

/* Copies the newest kept lines, oldest first, whole lines only, as a NUL-terminated text
 * of less than size bytes.  Returns its length.
 */
size_t log_tail(char *text, size_t size);

#endif
