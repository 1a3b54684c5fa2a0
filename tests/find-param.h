/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FIND_PARAM_H
#define TESTS_FIND_PARAM_H

#include "engine/engine.h"

#include <errno.h>
#include <string.h>

/* The number of the parameter of that name and coordinate ("": none).  -ENOENT. */
static inline int find_param(struct engine *e, const char *name, const char *coordinate,
			     uint32_t *param)
{
	struct engine_param p;

	for (uint32_t i = 0; engine_param(e, i, &p); i++) {
		if (!strcmp(p.name, name) && !strcmp(p.coordinate, coordinate)) {
			*param = i;
			return 0;
		}
	}
	return -ENOENT;
}

#endif
