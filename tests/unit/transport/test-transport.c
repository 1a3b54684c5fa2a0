/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/unit/transport/transport-suite.h"
#include "tests/unit/transport/transports.h"

int main(void)
{
	Suite *s = suite_create("transport");
	SRunner *r = srunner_create(s);
	int failed;

	for (int v = 0; v < UCX; v++)
		suite_add_tcase(s, transport_suite(v));
	for (int v = PLAIN; v < UCX; v++)
		suite_add_tcase(s, transport_suite_listening(v));
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
