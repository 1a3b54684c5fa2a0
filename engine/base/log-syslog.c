/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log-syslog.h"

#include <syslog.h>

void log_syslog_open(void)
{
	openlog("fragfs", LOG_PID | LOG_NDELAY, LOG_DAEMON);
}

void log_syslog_send(int level, const char *line)
{
	static const int priorities[] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG,
					  LOG_DEBUG };

	syslog(priorities[level], "%s", line);
}
