/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* A .metadata of torch.distributed.checkpoint: chunks are inside their tensors, states are of
 * parameters.
 */

#include "engine/checkpoint/formats/dcp-names.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/memfile.h"

#include <string.h>

static void ask_chunks(const struct dcp_metadata *d, const struct dcp_metadata_item *item)
{
	struct parse_error why = { "" };
	struct dcp_metadata_chunk chunk;

	for (uint32_t i = 0; i < item->nchunks; i++) {
		if (dcp_metadata_chunk(d, item, i, &chunk, &why))
			continue;
		for (uint32_t k = 0; k < item->ndim; k++)
			assert(chunk.offsets[k] + chunk.sizes[k] <= item->shape[k]);
		assert(chunk.is_empty || chunk.place.file);
	}
}

static void ask_items(const struct dcp_metadata *d)
{
	for (uint32_t i = 0; i < dcp_metadata_count(d); i++) {
		struct parse_error why = { "" };
		struct dcp_metadata_item item;
		struct dcp_metadata_place place;

		if (dcp_metadata_item(d, i, &item, &why)) {
			assert(*why.why && !strchr(why.why, '\n'));
			continue;
		}
		assert(item.name_size <= DCP_NAME_MAX &&
		       !memchr(item.name, '\0', item.name_size));
		ask_chunks(d, &item);
		dcp_metadata_bytes(d, &item, &place, &why);
	}
}

static void see(void *arg, const struct dcp_metadata_item *item, const char *why)
{
	assert(item->name && *why);
}

static void ask_names(const struct dcp_metadata *d)
{
	struct parse_error why = { "" };
	struct dcp_names names;

	if (dcp_names_make(&names, d, see, NULL, &why)) {
		assert(*why.why);
		return;
	}
	for (uint32_t i = 0; i < names.count; i++) {
		const struct dcp_name *x = &names.items[i];

		assert(x->cut <= x->size && (!x->key || !names.items[x->param].key));
		assert(x->states + x->nstates <= names.nstates);
		for (uint32_t k = 0; k < x->nstates; k++)
			assert(names.items[names.states[x->states + k]].param == i);
	}
	dcp_names_free(&names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct blob b = memfile(data, size);
	struct parse_error why = { "" };
	struct dcp_metadata d;

	if (!dcp_metadata_open(&d, &b, &why)) {
		ask_items(&d);
		ask_names(&d);
		dcp_metadata_close(&d);
	} else {
		assert(*why.why && !strchr(why.why, '\n'));
	}
	close(b.fd);
	return 0;
}
