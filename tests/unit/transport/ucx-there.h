/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_TRANSPORT_UCX_THERE_H
#define TESTS_UNIT_TRANSPORT_UCX_THERE_H

#include "engine/transport/transport.h"

#include <sys/wait.h>

/* Whether it can be loaded and use lo; else a line on stderr says why.  Looked at in a process
 * of its own: what is loaded stays loaded.
 */
static inline bool ucx_is_there(void)
{
	const struct transport_config config = { .bind = "ucx://127.0.0.1", .devices = "lo" };
	struct transport *t;
	pid_t child = fork();
	int status = 1;

	if (!child)
		_exit(transport_ucx.open(&t, &config) != 0);
	waitpid(child, &status, 0);
	return !status;
}

#endif
