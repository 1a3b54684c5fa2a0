/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FAIL_LINEARIZE_H
#define TESTS_FAIL_LINEARIZE_H

/* Wing and Gong's search for one register that is set, read, and counted up, with Lowe's memory
 * of where it has been: exact, and quick where few operations are under way at one time.
 */

#include <limits.h>
#include <stddef.h>

enum operation_kind { OPERATION_READ, OPERATION_SET, OPERATION_ADD };

#define OPERATION_NEVER LLONG_MAX /* it has not returned */

struct operation {
	enum operation_kind kind;
	long long value; /* ADD: not looked at */
	long long begin, end;
};

enum { LINEARIZE_OUT_OF_MEMORY = -2, LINEARIZE_YES = -1 };

/* The register is 0 at first.  LINEARIZE_YES, or the number of an operation that no order
 * explains.
 */
long linearize(const struct operation *operations, size_t n);

#endif
