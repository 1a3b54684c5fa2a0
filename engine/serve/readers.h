/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_READERS_H
#define ENGINE_SERVE_READERS_H

/* The observers that this rank hears: mounts and programs, which say in each PING who they are.
 * Engine thread, with the lock.
 */

#include "engine/base/vec.h"
#include "engine/node/node.h"

#include <stdio.h>

struct readers {
	struct vec list; /* struct reader */
};

/* Notes a PING of peer whose tail is a struct wire_observer, and forgets observers that have
 * been silent for so long that they have no views.  Any other tail is ignored.
 */
void readers_heard(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *tail, size_t tail_size, uint64_t now_ms);

#define READERS_COLUMNS                                                                        \
	"rank\thost\tpid\tuid\tprogram\tmode\tseconds\t"                                       \
	"views\tbytes\tpreserved\toldest\tsilent\n"

/* Prints a line for each observer that is heard or has views of this rank's states. */
void readers_print(struct engine *e, FILE *out);
/* NULL is allowed. */
void readers_free(struct readers *r);

#endif
