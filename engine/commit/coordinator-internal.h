/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COMMIT_COORDINATOR_INTERNAL_H
#define ENGINE_COMMIT_COORDINATOR_INTERNAL_H

#include "engine/commit/coordinator.h"

enum { COORDINATOR_TELL_MS = 200 }; /* before who may not have heard is told, or asked, again */

/* Edits that were promised and of whose decision nothing is heard. */
void coordinator_adopt_turn(struct engine *e, uint64_t now);
void coordinator_adopt_free(struct engine *e);

#endif
