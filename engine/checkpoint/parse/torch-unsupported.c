/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/torch-dtype.h"
#include "engine/checkpoint/parse/torch-unsupported.h"

#include <stdio.h>
#include <string.h>

#define MAKER "_rebuild_"

static const char lazy[] = "its values are the conjugates, or negatives, of its bytes";

static const struct {
	const char *maker, *why;
} reasons[] = {
	{ "_rebuild_tensor_v2", lazy },
	{ "_rebuild_qtensor", "it is quantized" },
	{ "_rebuild_sparse_tensor", "it is sparse" },
	{ "_rebuild_sparse_csr_tensor", "it is sparse" },
	{ "_rebuild_nested_tensor", "it is nested, of tensors of several shapes" },
	{ "_rebuild_meta_tensor_no_storage", "it has no values, on the device meta" },
};

static void put(char why[TORCH_UNSUPPORTED_MAX], const char *text, const struct pickle *p,
		uint32_t global)
{
	size_t module_size = 0, size = 0;
	const char *module = pickle_text(p, pickle_module(p, global), &module_size);
	const char *name = pickle_text(p, pickle_name(p, global), &size);

	snprintf(why, TORCH_UNSUPPORTED_MAX, "%s %.*s.%.*s", text,
		 (int)u64_min(module_size, 80), module ? module : "", (int)u64_min(size, 80),
		 name ? name : "");
}

/* arguments: (storage, offset, shape, stride, requires_grad, hooks, dtype, metadata). */
static void say_of_v3(const struct pickle *p, uint32_t arguments,
		      char why[TORCH_UNSUPPORTED_MAX])
{
	uint32_t type = pickle_item(p, arguments, 6);
	enum frag_dtype dtype;
	size_t size = 0;
	const char *name = pickle_text(p, pickle_name(p, type), &size);

	if (name && torch_dtype_by_name(name, size, &dtype))
		snprintf(why, TORCH_UNSUPPORTED_MAX, "%s", lazy);
	else
		put(why, "its dtype is", p, type);
}

static bool is_maker(const struct pickle *p, uint32_t callee)
{
	size_t size = 0, prefix = strlen(MAKER);
	const char *name = pickle_text(p, pickle_name(p, callee), &size);

	return name && size > prefix && !memcmp(name, MAKER, prefix) &&
	       pickle_is_text(p, pickle_module(p, callee), "torch._utils");
}

static bool say(const struct pickle *p, uint32_t callee, uint32_t arguments,
		char why[TORCH_UNSUPPORTED_MAX])
{
	if (!is_maker(p, callee))
		return false;
	put(why, "it is made by", p, callee);
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (pickle_is_text(p, pickle_name(p, callee), reasons[i].maker))
			snprintf(why, TORCH_UNSUPPORTED_MAX, "%s", reasons[i].why);
	if (pickle_is_text(p, pickle_name(p, callee), "_rebuild_tensor_v3"))
		say_of_v3(p, arguments, why);
	return true;
}

/* Returns true for _rebuild_from_type_v2(function, class, arguments, attributes). */
static bool has_class(const struct pickle *p, uint32_t node)
{
	return pickle_is_object(p, node, "torch._tensor", "_rebuild_from_type_v2");
}

bool torch_unsupported(const struct pickle *p, uint32_t node, char why[TORCH_UNSUPPORTED_MAX])
{
	uint32_t arguments = pickle_arguments(p, node), class = pickle_item(p, arguments, 1);

	if (!has_class(p, node))
		return say(p, pickle_callee(p, node), arguments, why);
	if (!say(p, pickle_item(p, arguments, 0), pickle_item(p, arguments, 2), why))
		return false;
	if (!pickle_is_plain_class(p, class))
		put(why, "it is of class", p, class);
	return true;
}

uint32_t torch_unsupported_attributes(const struct pickle *p, uint32_t node)
{
	return has_class(p, node) ? pickle_item(p, pickle_arguments(p, node), 3)
				  : PICKLE_NOTHING;
}
