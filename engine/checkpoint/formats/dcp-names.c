/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/dcp-names.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <string.h>

#define STATE "state."
#define MODEL "model."

enum { PLACES_MAX = 4 }; /* places of "state." in one name that are tried */

/* ---- texts ---- */

struct name_text {
	const char *at;
	size_t size;
};

static int compare_texts(struct name_text a, struct name_text b)
{
	return utf8_compare(a.at, a.size, b.at, b.size);
}

static bool is_text(struct name_text a, const char *b)
{
	return a.size == strlen(b) && !memcmp(a.at, b, a.size);
}

static struct name_text name_of(const struct dcp_name *x)
{
	return (struct name_text){ x->name, x->size };
}

static int compare_items(const void *a, const void *b, void *names)
{
	const struct dcp_names *n = names;

	return compare_texts(name_of(&n->items[*(const uint32_t *)a]),
			     name_of(&n->items[*(const uint32_t *)b]));
}

static int compare_name(const struct dcp_names *n, uint64_t i, struct name_text name)
{
	return compare_texts(name_of(&n->items[n->by_name[i]]), name);
}

/* Returns the number of the tensor of that name; UINT32_MAX: none. */
static uint32_t find_tensor(const struct dcp_names *n, struct name_text name)
{
	uint64_t at = LOWER_BOUND(n->ntensors, i, compare_name(n, i, name) < 0);

	return at < n->ntensors && !compare_name(n, at, name) ? n->by_name[at] : UINT32_MAX;
}

uint32_t dcp_names_find(const struct dcp_names *n, const char *section, size_t section_size,
			const char *name, size_t size)
{
	static const char *const models[] = { MODEL, "" };
	char tried[2 * DCP_NAME_MAX + sizeof(MODEL)];
	size_t above = section_size - (section_size > 0);

	assert(section_size <= DCP_NAME_MAX && size <= DCP_NAME_MAX);
	while (above && section[above - 1] != '.') /* "app.optim." -> "app." */
		above--;
	for (int i = 0; i < 4; i++) { /* "app.model.NAME", "app.NAME", "model.NAME", "NAME" */
		char *at = mempcpy(tried, section, i < 2 ? above : 0);
		uint32_t found;

		at = mempcpy(at, models[i % 2], strlen(models[i % 2]));
		at = mempcpy(at, name, size);
		found = find_tensor(n, (struct name_text){ tried, (size_t)(at - tried) });
		if (found != UINT32_MAX)
			return found;
	}
	return UINT32_MAX;
}

/* ---- states ---- */

/* Returns true if the key can name a file in the parameter's folder, beside the files that are
 * always there.
 */
static bool is_key(struct name_text key)
{
	static const char *const taken[] = { "shape", "dtype", "numel", "group", "fragments" };

	if (!key.size || key.size > FRAG_KEY_MAX || *key.at == '.')
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
		if (is_text(key, taken[i]))
			return false;
	for (size_t i = 0; i < key.size; i++)
		if ((unsigned char)key.at[i] <= ' ' || key.at[i] == '/' || key.at[i] == 127)
			return false;
	return true;
}

/* Links item i as a state, `key`, to the parameter that the optimizer calls `name`.  Returns
 * false if there is no such parameter, or the item is no state of it.
 */
static bool link_as(struct dcp_names *n, uint32_t i, size_t section, struct name_text name,
		    struct name_text key)
{
	struct dcp_name *x = &n->items[i];
	uint32_t found = name.size ? dcp_names_find(n, x->name, section, name.at, name.size)
				   : UINT32_MAX;
	struct dcp_metadata_item state, param;
	struct parse_error error;
	struct name_text prefix;

	if (found == UINT32_MAX || found == i || !is_key(key) ||
	    dcp_metadata_item(n->metadata, i, &state, &error) ||
	    dcp_metadata_item(n->metadata, found, &param, &error))
		return false;
	x->is_scalar = state.ndim != param.ndim ||
		       memcmp(state.shape, param.shape, state.ndim * sizeof(*state.shape));
	if (x->is_scalar && state.numel != 1)
		return false;
	if (is_text(key, "fp32_param") || is_text(key, "master_param"))
		key = (struct name_text){ "fp32", 4 };
	x->key = key.at;
	x->key_size = key.size;
	x->param = found;
	prefix = (struct name_text){ n->items[found].name, n->items[found].size - name.size };
	if (!n->prefix) {
		n->prefix = prefix.at;
		n->prefix_size = prefix.size;
	}
	n->mixed |= compare_texts(prefix, (struct name_text){ n->prefix, n->prefix_size }) != 0;
	return true;
}

/* Links item i, whose name ends in `rest`: "NAME.KEY" or "KEY.NAME". */
static bool link_rest(struct dcp_names *n, uint32_t i, size_t section, struct name_text rest)
{
	const char *last = memrchr(rest.at, '.', rest.size);
	const char *first = memchr(rest.at, '.', rest.size), *end = rest.at + rest.size;

	if (!last)
		return false;
	return link_as(n, i, section, (struct name_text){ rest.at, (size_t)(last - rest.at) },
		       (struct name_text){ last + 1, (size_t)(end - last - 1) }) ||
	       link_as(n, i, section,
		       (struct name_text){ first + 1, (size_t)(end - first - 1) },
		       (struct name_text){ rest.at, (size_t)(first - rest.at) });
}

static void link_item(struct dcp_names *n, uint32_t i)
{
	struct name_text name = name_of(&n->items[i]);
	size_t length = strlen(STATE);
	int tried = 0;

	for (size_t at = 0; at + length < name.size && tried < PLACES_MAX; at++) {
		struct name_text rest = { name.at + at + length, name.size - at - length };

		if ((at && name.at[at - 1] != '.') || memcmp(name.at + at, STATE, length))
			continue;
		tried++;
		if (link_rest(n, i, at, rest))
			return;
	}
}

static int compare_states(const void *a, const void *b, void *names)
{
	const struct dcp_names *n = names;
	const struct dcp_name *x = &n->items[*(const uint32_t *)a];
	const struct dcp_name *y = &n->items[*(const uint32_t *)b];

	if (x->param != y->param)
		return x->param < y->param ? -1 : 1;
	return compare_texts((struct name_text){ x->key, x->key_size },
			     (struct name_text){ y->key, y->key_size });
}

static void sort_states(struct dcp_names *n)
{
	n->nstates = 0;
	for (uint32_t i = 0; i < n->count; i++)
		if (n->items[i].key)
			n->states[n->nstates++] = i;
	qsort_r(n->states, n->nstates, sizeof(*n->states), compare_states, n);
}

/* Unlinks items that are states of a state, and second states of the same key: they become
 * parameters.
 */
static void unlink_some(struct dcp_names *n)
{
	for (uint32_t i = 0; i < n->nstates; i++) {
		struct dcp_name *x = &n->items[n->states[i]];

		x->is_alone = n->items[x->param].key ||
			      (i && !compare_states(&n->states[i - 1], &n->states[i], n));
	}
	for (uint32_t i = 0; i < n->count; i++)
		if (n->items[i].is_alone)
			n->items[i].key = NULL;
}

static void link_states(struct dcp_names *n)
{
	for (uint32_t i = 0; i < n->count; i++)
		if (n->items[i].is_tensor)
			link_item(n, i);
	sort_states(n);
	unlink_some(n);
	sort_states(n);
	for (uint32_t i = 0; i < n->nstates; i++) {
		struct dcp_name *param = &n->items[n->items[n->states[i]].param];

		if (!param->nstates++)
			param->states = i;
	}
}

/* ---- names that are shown ---- */

static bool is_cut(const struct dcp_names *n, const struct dcp_name *x)
{
	return !x->key && x->size > n->prefix_size &&
	       !memcmp(x->name, n->prefix, n->prefix_size);
}

static int compare_cut(const void *a, const void *b, void *names)
{
	const struct dcp_names *n = names;
	struct name_text text[2];

	for (int i = 0; i < 2; i++) {
		const struct dcp_name *x = &n->items[*(const uint32_t *)(i ? b : a)];

		text[i] = name_of(x);
		if (is_cut(n, x)) {
			text[i].at += n->prefix_size;
			text[i].size -= n->prefix_size;
		}
	}
	return compare_texts(text[0], text[1]);
}

static int cut_names(struct dcp_names *n)
{
	CLEANUP(free) uint32_t *by = calloc((size_t)n->ntensors + 1, sizeof(*by));

	if (!by)
		return -ENOMEM;
	memcpy(by, n->by_name, n->ntensors * sizeof(*by));
	if (!n->prefix_size || n->mixed)
		return 0;
	qsort_r(by, n->ntensors, sizeof(*by), compare_cut, n);
	for (uint32_t i = 1; i < n->ntensors; i++)
		if (!compare_cut(&by[i - 1], &by[i], n)) /* two names would become equal */
			return 0;
	for (uint32_t i = 0; i < n->count; i++)
		n->items[i].cut = is_cut(n, &n->items[i]) ? (uint32_t)n->prefix_size : 0;
	return 0;
}

/* ---- doors ---- */

static int take_items(struct dcp_names *n,
		      void (*see)(void *arg, const struct dcp_metadata_item *item,
				  const char *why),
		      void *arg, struct parse_error *error)
{
	for (uint32_t i = 0; i < n->count; i++) {
		struct dcp_metadata_item item;
		int rc = dcp_metadata_item(n->metadata, i, &item, error);

		if (rc && rc != -EOPNOTSUPP)
			return rc;
		if (rc)
			see(arg, &item, error->why);
		n->items[i].name = item.name;
		n->items[i].size = item.name_size;
		n->items[i].is_taken = !rc;
		n->items[i].is_tensor = !rc && item.is_tensor;
		if (n->items[i].is_tensor)
			n->by_name[n->ntensors++] = i;
	}
	error->why[0] = '\0';
	qsort_r(n->by_name, n->ntensors, sizeof(*n->by_name), compare_items, n);
	return 0;
}

int dcp_names_make(struct dcp_names *n, const struct dcp_metadata *d,
		   void (*see)(void *arg, const struct dcp_metadata_item *item,
			       const char *why),
		   void *arg, struct parse_error *error)
{
	size_t room = (size_t)dcp_metadata_count(d) + 1;
	int rc;

	*n = (struct dcp_names){ .metadata = d,
				 .count = dcp_metadata_count(d),
				 .items = calloc(room, sizeof(*n->items)),
				 .by_name = calloc(room, sizeof(*n->by_name)),
				 .states = calloc(room, sizeof(*n->states)) };
	rc = n->items && n->by_name && n->states ? take_items(n, see, arg, error) : -ENOMEM;
	if (!rc)
		link_states(n);
	if (!rc)
		rc = cut_names(n);
	if (rc == -ENOMEM)
		parse_error_set(error, rc, "no memory");
	if (rc)
		dcp_names_free(n);
	return rc;
}

void dcp_names_free(struct dcp_names *n)
{
	free(n->items);
	free(n->by_name);
	free(n->states);
	*n = (struct dcp_names){ 0 };
}
