/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/zero-files.h"

#include <errno.h>
#include <string.h>

static bool skip_text(const char **at, const char *text)
{
	size_t length = strlen(text);

	if (strncmp(*at, text, length) != 0)
		return false;
	*at += length;
	return true;
}

static bool skip_number(const char **at, uint32_t *number)
{
	uint32_t n = 0;
	const char *begin = *at;

	for (; **at >= '0' && **at <= '9' && n < TABLE_RANKS_MAX; ++*at)
		n = n * 10 + (uint32_t)(**at - '0');
	*number = n;
	return *at > begin && n < TABLE_RANKS_MAX;
}

static bool parse(const char *name, struct zero_file *out)
{
	const char *at = name;
	bool shard, prefix = skip_text(&at, "bf16_") || skip_text(&at, "fp16_");

	*out = (struct zero_file){ .name = name };
	shard = skip_text(&at, "zero_pp_rank_");
	if (shard && (!skip_number(&at, &out->dp) || !skip_text(&at, "_")))
		return false;
	if (!skip_text(&at, "mp_rank_") || !skip_number(&at, &out->mp))
		return false;
	if (!strcmp(at, "_model_states.pt") && !prefix) {
		out->role = shard ? ZERO_MODEL_SHARD : ZERO_MODEL;
		return true;
	}
	out->role = ZERO_OPTIM;
	return shard && !strcmp(at, "_optim_states.pt");
}

bool zero_files_any(const struct folder *f)
{
	struct zero_file file;

	for (size_t i = 0; i < f->count && !f->only; i++)
		if (parse(f->names[i], &file))
			return true;
	return false;
}

static int compare(const void *a, const void *b)
{
	const struct zero_file *x = a, *y = b;

	if (x->mp != y->mp)
		return x->mp < y->mp ? -1 : 1;
	if (x->role != y->role)
		return x->role < y->role ? -1 : 1;
	return (x->dp > y->dp) - (x->dp < y->dp);
}

/* ---- files that are not read ---- */

/* Returns the reason why a file of DeepSpeed's is not read; NULL: the file is not DeepSpeed's.
 */
static const char *foreign(const char *name)
{
	if (!strcmp(name, "offloaded_tensors"))
		return "optimizer states that were offloaded to NVMe";
	if (!strncmp(name, "expp_rank_", 10) && folder_ends_in(name, "_optim_states.pt"))
		return "optimizer states of experts";
	if ((!strncmp(name, "layer_", 6) || !strncmp(name, "expert_", 7)) &&
	    strstr(name, "expert_") && folder_ends_in(name, "_model_states.pt"))
		return "an expert's low-precision weights";
	if (!strncmp(name, "layer_", 6) && folder_ends_in(name, "_states.pt"))
		return "low-precision weights of a pipeline's layer";
	return folder_ends_in(name, "_optim_states.pt") ||
			       folder_ends_in(name, "_model_states.pt")
		       ? "a name that DeepSpeed does not give"
		       : NULL;
}

/* ---- all of them ---- */

static int check_order(struct table *t, const struct zero_file *last,
		       const struct zero_file *file)
{
	bool same = last && last->mp == file->mp && last->role == file->role;
	uint32_t mp = last ? last->mp + (last->mp != file->mp) : 0;
	uint32_t dp = same ? last->dp + 1 : 0;
	const char *kind = file->role == ZERO_OPTIM ? "optim" : "model";

	if (file->mp != mp)
		return table_refuse(t, -EINVAL, "there is %.100s, but no file of mp_rank_%02u",
				    file->name, mp);
	if (same && last->dp == file->dp)
		return table_refuse(t, -EINVAL, "%.100s and %.100s are of one rank", last->name,
				    file->name);
	if (file->dp != dp)
		return table_refuse(t, -EINVAL,
				    "there is %.100s, but no %s_states of zero_pp_rank_%u",
				    file->name, kind, dp);
	return 0;
}

int zero_files_list(struct zero_files *z, const struct folder *f, struct table *t)
{
	int rc = 0;

	*z = (struct zero_files){ .files = calloc(f->count + 1, sizeof(*z->files)) };
	if (!z->files)
		return -ENOMEM;
	for (size_t i = 0; i < f->count; i++)
		z->n += parse(f->names[i], &z->files[z->n]);
	qsort(z->files, z->n, sizeof(*z->files), compare);
	for (uint32_t i = 0; i < z->n && !rc; i++)
		rc = check_order(t, i ? &z->files[i - 1] : NULL, &z->files[i]);
	if (rc) {
		zero_files_free(z);
		return rc;
	}
	z->nmp = z->n ? z->files[z->n - 1].mp + 1 : 0;
	for (size_t i = 0; i < f->count; i++) {
		struct zero_file file;
		const char *why = parse(f->names[i], &file) ? NULL : foreign(f->names[i]);

		if (why)
			table_skip(t, f->names[i], "%s", why);
	}
	return 0;
}

void zero_files_free(struct zero_files *z)
{
	free(z->files);
	*z = (struct zero_files){ 0 };
}

const struct zero_file *zero_files_of(const struct zero_files *z, uint32_t mp,
				      enum zero_role role, uint32_t *n)
{
	const struct zero_file *first = NULL;

	*n = 0;
	for (uint32_t i = 0; i < z->n; i++) {
		if (z->files[i].mp != mp || z->files[i].role != role)
			continue;
		if (!first)
			first = &z->files[i];
		++*n;
	}
	return first;
}
