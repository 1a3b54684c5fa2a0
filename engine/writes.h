/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WRITES_H
#define ENGINE_WRITES_H

#include "engine/node.h"

#include <stdio.h>

/* Without the lock, any thread.  wait_applied: done comes when every holder has applied it, at its next
 * boundary; else when every holder is bound to.
 */
void writes_start(struct engine *e, struct engine_write *write, bool wait_applied);

/* A line for each waiting commit.  With the lock. */
void writes_describe(struct engine *e, FILE *out);

/* Ends every commit with -ECANCELED; the engine thread is gone. */
void writes_abandon(struct engine *e);

#endif
