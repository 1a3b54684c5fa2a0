/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/run-suite.h"
#include "tests/unit/transport/transport-suite.h"
#include "tests/unit/transport/transports.h"

int main(void)
{
	Suite *s = suite_create("transport");

	for (int v = 0; v < UCX; v++)
		suite_add_tcase(s, transport_suite(v));
	for (int v = PLAIN; v < TLS; v++)
		suite_add_tcase(s, transport_suite_listening(v));
	return run_suite(s, transport_suite_listening(TLS));
}
