/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/checkpoint/formats/torch-hypers.h"

#include <stdio.h>
#include <string.h>

enum { HYPERS_MAX = 128 }; /* of one group */

/* Reads a tensor of one number. */
static bool read_number(const struct torch_source *s, uint32_t node, double *out)
{
	union {
		double f64;
		int64_t i64;
		int32_t i32;
		uint8_t bytes[16];
	} value;
	struct torchfile_tensor x;
	float f32;
	ssize_t n;

	if (!torch_source_tensor(s, node, &x) || x.tensor.numel != 1)
		return false;
	n = pread(s->table->files[s->file].fd, value.bytes, x.tensor.bytes, (off_t)x.at);
	if (n != (ssize_t)x.tensor.bytes)
		return false;
	if (x.tensor.dtype == FRAG_F64)
		*out = value.f64;
	else if (x.tensor.dtype == FRAG_I64)
		*out = (double)value.i64;
	else if (x.tensor.dtype == FRAG_I32)
		*out = value.i32;
	else if (!dtype_convert(FRAG_F32, &f32, x.tensor.dtype, value.bytes, 1))
		*out = (double)f32;
	else
		return false;
	return true;
}

bool torch_hypers_number(const struct torch_source *s, uint32_t node, double *out)
{
	return pickle_number(s->torch.pickle, node, out) || read_number(s, node, out);
}

static int add_number(const struct torch_source *s, uint32_t group, const char *name,
		      uint32_t node)
{
	const struct table_group *g = &s->table->groups[group];
	double value;

	if (!torch_hypers_number(s, node, &value))
		return 0;
	for (uint32_t i = 0; i < g->nhypers; i++)
		if (!strcmp(g->hypers[i].name, name))
			return 0;
	if (g->nhypers == HYPERS_MAX) {
		table_skip(s->table, name, "group %u has more than %d hyper-parameters", group,
			   HYPERS_MAX);
		return 0;
	}
	return table_add_hyper(s->table, group, name, value);
}

/* Adds the numbers of a tuple: betas as beta1 and beta2. */
static int add_numbers(const struct torch_source *s, uint32_t group, const char *name,
		       uint32_t tuple)
{
	const struct pickle *p = s->torch.pickle;
	char each[FRAG_KEY_MAX + 1];
	size_t length = strlen(name);
	int rc = 0;

	/* "betas" -> "beta" */
	length -= length > 1 && name[length - 1] == 's';
	for (uint32_t i = 0; i < pickle_count(p, tuple) && i < 9 && !rc; i++) {
		int n = snprintf(each, sizeof(each), "%.*s%u", (int)length, name, i + 1);

		if (n < (int)sizeof(each))
			rc = add_number(s, group, each, pickle_item(p, tuple, i));
	}
	return rc;
}

int torch_hypers_add_one(const struct torch_source *s, uint32_t group, const char *name,
			 uint32_t node)
{
	enum pickle_kind kind = pickle_kind(s->torch.pickle, node);

	return kind == PICKLE_TUPLE || kind == PICKLE_LIST ? add_numbers(s, group, name, node)
							   : add_number(s, group, name, node);
}

/* Takes the name of a hyper-parameter from a dict's key.  Returns false if the key is no such
 * name.
 */
static bool take_name(const struct pickle *p, uint32_t key, char name[FRAG_KEY_MAX + 1])
{
	return torch_source_text(p, key, name, FRAG_KEY_MAX + 1) && *name &&
	       strcmp(name, "params") != 0 && strcmp(name, "param_names") != 0;
}

int torch_hypers_add(const struct torch_source *s, uint32_t group, uint32_t dict)
{
	const struct pickle *p = s->torch.pickle;
	char name[FRAG_KEY_MAX + 1];
	int rc = 0;

	for (uint32_t i = 0; i < pickle_count(p, dict) && !rc; i++)
		if (take_name(p, pickle_key(p, dict, i), name))
			rc = torch_hypers_add_one(s, group, name, pickle_value(p, dict, i));
	return rc;
}

static bool is_of_elements(const struct torch_source *s, uint32_t node,
			   const struct tensor *master)
{
	struct torchfile_tensor x;

	return pickle_kind(s->torch.pickle, node) == PICKLE_TENSOR &&
	       (!master || !torch_source_tensor(s, node, &x) ||
		tensor_is_shaped_as(&x.tensor, master));
}

int torch_hypers_add_states(const struct torch_source *s, uint32_t group, uint32_t dict,
			    const struct tensor *master)
{
	const struct pickle *p = s->torch.pickle;
	char name[FRAG_KEY_MAX + 1];
	int rc = 0;

	for (uint32_t i = 0; i < pickle_count(p, dict) && !rc; i++) {
		uint32_t value = pickle_value(p, dict, i);

		if (take_name(p, pickle_key(p, dict, i), name) &&
		    (!strcmp(name, "step") || !is_of_elements(s, value, master)))
			rc = torch_hypers_add_one(s, group, name, value);
	}
	return rc;
}
