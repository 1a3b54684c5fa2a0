/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* A safetensors file, or, where it begins with '{', the index of several. */

#include "engine/checkpoint/formats/safetensors-index.h"
#include "engine/checkpoint/parse/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/memfile.h"

#include <string.h>

static void ask_file(const struct safetensors *s, const struct blob *b)
{
	uint64_t end = s->ntensors ? s->tensors[0].at : b->size;

	for (uint32_t i = 0; i < s->ntensors; i++) {
		const struct safetensor *t = &s->tensors[i];
		uint64_t numel = 1;

		assert(t->at == end && t->bytes <= b->size - t->at);
		assert(t->numel * t->bits == t->bytes * 8 && t->ndim <= FRAG_DIMS_MAX);
		for (uint32_t k = 0; k < t->ndim; k++)
			numel *= t->shape[k];
		assert(numel == t->numel);
		end += t->bytes;
	}
	assert(end == b->size);
}

static void ask_index(const struct safetensors_index *x)
{
	for (uint32_t i = 0; i < x->nplaces; i++)
		assert(x->places[i].file < x->nfiles);
	for (uint32_t i = 0; i < x->nfiles; i++)
		assert(*x->files[i] && !strchr(x->files[i], '/') && strcmp(x->files[i], "..") &&
		       strcmp(x->files[i], "."));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool is_index = size && data[0] == '{';
	struct blob b = memfile(data, size);
	struct parse_error why = { "" };
	struct safetensors_index x;
	struct safetensors s;
	int rc = is_index ? safetensors_index_open(&x, &b, &why)
			  : safetensors_open(&s, &b, &why);

	assert(!rc || (*why.why && !strchr(why.why, '\n')));
	if (!rc && is_index) {
		ask_index(&x);
		safetensors_index_close(&x);
	} else if (!rc) {
		ask_file(&s, &b);
		safetensors_close(&s);
	}
	close(b.fd);
	return 0;
}
