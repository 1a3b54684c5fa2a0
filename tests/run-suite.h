/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_RUN_SUITE_H
#define TESTS_RUN_SUITE_H

/* The end of a test program's main. */

#include <check.h>

/* Runs the suite of one case, and frees it; returns the program's exit status. */
static inline int run_suite(Suite *s, TCase *t)
{
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}

#endif
