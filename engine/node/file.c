/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/one-line.h"
#include "engine/node/file.h"

void file_put_folder(const struct engine *e, const struct engine_address *a, FILE *out)
{
	if (a->kind == ENGINE_HYPER)
		fprintf(out, "groups/%u", a->group);
	else if (a->kind != ENGINE_PARAM)
		fprintf(out, "ranks/%u", a->rank);
	if (a->kind == ENGINE_RANK_PARTITION)
		fprintf(out, "/partitions/%u.%u", a->group, a->sub);
	if (a->kind == ENGINE_RANK_PARAM)
		fputs("/params/", out);
	if (a->kind == ENGINE_PARAM || a->kind == ENGINE_RANK_PARAM)
		one_line_put(out, catalog_name(e->catalog, a->param));
}

void file_put_states(const struct engine_file *f, char between, FILE *out)
{
	file_put_folder(f->engine, &f->parts->address, out);
	putc(between, out);
	one_line_put(out, f->parts->address.key);
	if (f->nparts > 1)
		fprintf(out, " and %u more state%s", f->nparts - 1, f->nparts == 2 ? "" : "s");
}
