/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_PORTS_TRANSPORT_LOOP_H
#define TESTS_PORTS_TRANSPORT_LOOP_H

/* Messages and memory between engines of one process, which a test steps. */

#include "engine/transport/transport.h"

extern const struct transport_ops transport_loop;

#endif
