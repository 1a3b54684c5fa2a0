/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_TRANSPORT_TRANSPORT_SUITE_H
#define TESTS_UNIT_TRANSPORT_TRANSPORT_SUITE_H

/* What holds for each implementation of messages in engine/transport/transport.h. */

#include <check.h>

/* Of variants, in tests/unit/transport/transports.h. */
TCase *transport_suite(int variant);
/* Of those that listen on a network. */
TCase *transport_suite_listening(int variant);
/* Of these n tests, with the variant as their _i. */
TCase *transport_case(int variant, const TTest *const *tests, size_t n);

#endif
