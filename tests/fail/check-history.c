/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/fail/history.h"

#include <stdio.h>
#include <stdlib.h>

/* check-history STAGE FILE...: what is wrong with a history of edit-job's and edit-client's
 * files, if anything; then what there was.
 */

static int load(struct history *h, const char *path)
{
	FILE *in = fopen(path, "re");
	int rc;

	if (!in) {
		perror(path);
		return 2;
	}
	rc = history_load(h, in, stdout);
	fclose(in);
	return rc ? 2 : 0;
}

int main(int argc, char **argv)
{
	struct history *h = history_new();
	struct history_counts c;
	unsigned wrong;

	if (argc < 3 || !h)
		return 2;
	for (int i = 2; i < argc; i++)
		if (load(h, argv[i]))
			return 2;
	wrong = history_check(h, atoi(argv[1]), stdout, &c);
	printf("edits %u refused %u reads %u steps %u; of those under way at the kill: "
	       "committed %u aborted %u; "
	       "violations %u\n",
	       c.edits, c.refused, c.reads, c.steps, c.committed, c.aborted, wrong);
	history_free(h);
	return wrong != 0;
}
