/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_LOG_SYSLOG_H
#define ENGINE_BASE_LOG_SYSLOG_H

/* The log's calls of syslog(3), whose header has other meanings for LOG_INFO and LOG_DEBUG. */

void log_syslog_open(void);
/* Sends a line with the priority of level, an enum log_level. */
void log_syslog_send(int level, const char *line);

#endif
