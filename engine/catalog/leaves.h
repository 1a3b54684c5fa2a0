/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_LEAVES_H
#define ENGINE_CATALOG_LEAVES_H

/* Leaves: modules whose parameters are used as one.  A module is what a parameter's name has
 * before a dot:
 *
 *	layers.0.mlp.up.weight    is in layers, layers.0, layers.0.mlp, layers.0.mlp.up
 *
 * The outermost of marked modules that lie in one another is the leaf.  The parameters of a
 * leaf are a ring, in the order of their numbers.  No I/O, no threads.
 */

#include "engine/base/vec.h"
#include "engine/catalog/catalog.h"

#include <stdio.h>

struct leaves {
	struct vec marks; /* char *: names of marked modules, sorted */
	uint32_t *params; /* [marks.count]: how many each has */
	uint32_t *ring; /* [n]: the next parameter of the same leaf; LEAVES_NONE: in no leaf */
	uint32_t n;     /* parameters that there were at the last mark */
};

#define LEAVES_NONE UINT32_MAX

/* Marks the modules that `modules` names, or takes their marks away.  Returns how many modules
 * they are.
 * -ENOENT: `modules` names none.
 * -ENOMEM: nothing has changed.
 */
int leaves_mark(struct leaves *l, const struct catalog *c, enum frag_leaf_match match,
		const char *modules, bool on);
void leaves_fini(struct leaves *l);

/* Returns the next parameter of the leaf, perhaps param itself; LEAVES_NONE: param is in no
 * leaf.
 */
static inline uint32_t leaves_next(const struct leaves *l, uint32_t param)
{
	return param < l->n ? l->ring[param] : LEAVES_NONE;
}

/* Writes a line for each marked module: its name, by one_line_put, and how many parameters it
 * has.
 */
void leaves_print(const struct leaves *l, FILE *out);

#endif
