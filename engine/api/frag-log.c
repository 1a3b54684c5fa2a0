/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/frag.h"

#include <errno.h>

/* Lines are logged under any of the library's locks, so the caller's function, which may wait
 * for a lock of its own, is called by a thread that has none.
 */
static struct {
	pthread_t thread;
	frag_log_line line; /* NULL: there is no thread */
	void *arg;
	uint64_t after; /* number of the last line that was given to line */
} teller;

static void *tell(void *arg)
{
	enum log_level level;
	char text[LOG_TEXT_MAX];

	while (log_next(&teller.after, &level, text))
		teller.line(teller.arg, (int)level, text);
	return NULL;
}

int frag_log(frag_log_line line, void *arg)
{
	uint64_t count;
	int rc;

	if (teller.line && pthread_equal(teller.thread, pthread_self()))
		return -EDEADLK;
	/* a forked child has no such thread, and its lines have gone to stderr already */
	if (log_divert(false, &count))
		pthread_join(teller.thread, NULL);
	teller.line = line;
	teller.arg = arg;
	if (!line)
		return 0;
	log_divert(true, &teller.after);
	rc = thread_start(&teller.thread, tell, NULL);
	if (rc) {
		log_divert(false, &count);
		teller.line = NULL;
	}
	return rc;
}
