/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* A file of torch.save: whatever it says of entries and tensors lies in the file. */

#include "engine/checkpoint/parse/torchfile.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/memfile.h"

#include <string.h>

static void ask_zip(const struct zip *z, const struct blob *b)
{
	struct zip_crc_places at;
	struct parse_error why;
	uint64_t end = 0;

	for (uint32_t i = 0; i < z->nentries; i++) {
		const struct zip_entry *e = &z->entries[i];

		assert(e->header >= end && e->data > e->header && e->data <= b->size &&
		       e->size <= b->size - e->data);
		end = e->data + e->size;
		assert(zip_find(z, e->name) == e);
		if (!zip_crc_places(z, e, &at, &why))
			assert(at.central + 4 <= b->size && at.local + 4 <= b->size);
	}
}

static void ask_tensors(const struct torchfile *f, const struct blob *b)
{
	struct torchfile_tensor t;
	struct parse_error why;

	for (uint32_t i = 0; i < pickle_nodes(f->pickle); i++) {
		if (torchfile_tensor(f, i, &t, &why))
			continue;
		assert(t.at <= b->size && t.tensor.extent <= b->size - t.at);
		assert(!t.tensor.contiguous || t.tensor.extent == t.tensor.bytes);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct blob b = memfile(data, size);
	struct parse_error why = { "" };
	struct torchfile f;
	struct zip z;

	if (!zip_open(&z, &b, &why)) {
		ask_zip(&z, &b);
		zip_close(&z);
	}
	why.why[0] = '\0';
	if (!torchfile_open(&f, &b, &why)) {
		ask_tensors(&f, &b);
		torchfile_close(&f);
	} else {
		assert(*why.why && !strchr(why.why, '\n'));
	}
	close(b.fd);
	return 0;
}
