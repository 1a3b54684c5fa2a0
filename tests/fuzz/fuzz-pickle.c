/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* A pickle: every question about every node has an answer, and what is a key is found. */

#include "engine/checkpoint/parse/pickle.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/memfile.h"

#include <string.h>

static void ask_dict(const struct pickle *p, uint32_t dict)
{
	for (uint32_t i = 0; i < pickle_count(p, dict) && pickle_kind(p, dict) == PICKLE_DICT;
	     i++) {
		uint32_t key = pickle_key(p, dict, i), value = pickle_value(p, dict, i);
		size_t size = 0;
		const char *text = pickle_text(p, key, &size);
		int64_t integer;

		assert(key && value && pickle_kind(p, key) && pickle_kind(p, value));
		if (pickle_kind(p, key) == PICKLE_TEXT)
			assert(pickle_get_text(p, dict, text, size) == value);
		if (pickle_int(p, key, &integer))
			assert(pickle_get_int(p, dict, integer) == value);
	}
}

static uint64_t sum(const char *bytes, size_t size)
{
	uint64_t n = 0;

	for (size_t i = 0; i < size; i++)
		n += (uint8_t)bytes[i];
	return n;
}

static void ask(const struct pickle *p, uint32_t node)
{
	struct pickle_storage s;
	struct pickle_tensor t;
	size_t size = 0;
	const char *text = pickle_text(p, node, &size);
	double number;

	assert(sum(text, size) <= 255 * size);
	for (uint32_t i = 0; i < pickle_count(p, node); i++)
		assert(pickle_kind(p, node) == PICKLE_DICT || pickle_item(p, node, i));
	ask_dict(p, node);
	ask_dict(p, pickle_items(p, node));
	pickle_number(p, node, &number);
	pickle_field(p, node, "version");
	pickle_is_object(p, node, "torch", "Tensor");
	if (pickle_storage(p, node, &s))
		assert(frag_dtype_size(s.dtype) && s.numel < (uint64_t)1 << 62 &&
		       pickle_kind(p, s.key) == PICKLE_TEXT);
	if (pickle_tensor(p, node, &t))
		assert(frag_dtype_size(t.dtype) && pickle_storage(p, t.storage, &s) &&
		       pickle_count(p, t.shape) == pickle_count(p, t.stride));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct blob b = memfile(data, size);
	struct parse_error why = { "" };
	struct pickle *p;

	if (!pickle_read(&p, &b, 0, size, &why)) {
		assert(pickle_size(p) <= size && pickle_root(p) < pickle_nodes(p));
		assert(pickle_nodes(p) <= size + 8);
		for (uint32_t i = 0; i < pickle_nodes(p); i++)
			ask(p, i);
		pickle_free(p);
	} else {
		assert(*why.why && !strchr(why.why, '\n'));
	}
	close(b.fd);
	return 0;
}
