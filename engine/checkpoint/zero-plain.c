/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/zero-plain.h"
#include "engine/checkpoint/model-states.h"

int zero_plain_fill(struct table *t, const struct folder *f, const char *name, uint32_t rank)
{
	struct model_states m;
	int rc = model_states_open(&m, t, f, name, rank);

	if (rc)
		return rc;
	model_states_note(&m);
	table_note(t, "stage 0");
	rc = model_states_add_rest(&m);
	model_states_close(&m);
	return rc;
}
