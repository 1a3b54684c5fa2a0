/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/fragments.h"

#include "engine/base/base.h"
#include "engine/base/text.h"
#include "engine/base/vec.h"
#include "mount-helpers/mount-file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Cuts a line at its tabs. */
static void cut(char *line, char *fields[7])
{
	for (int i = 0; i < 7; i++) {
		fields[i] = line;
		line += strcspn(line, "\t");
		if (*line)
			*line++ = '\0';
	}
}

int fragments_read(struct fragments *f, const char *mountpoint, const struct param *param)
{
	char path[PATH_MAX], *rest, *line, *fields[7];
	struct vec list = { 0 };
	struct fragment *found;
	int e;

	*f = (struct fragments){ 0 };
	snprintf(path, sizeof(path), "%s/fragments", param->path);
	e = mount_file_read(mountpoint, path, &f->text);
	if (e)
		return e;
	line = strtok_r(f->text, "\n", &rest); /* the heading */
	while (line && (line = strtok_r(NULL, "\n", &rest))) {
		cut(line, fields);
		found = vec_add(&list, sizeof(*found));
		if (!found)
			break;
		*found = (struct fragment){ .rank = (uint32_t)strtoul(fields[0], NULL, 10),
					    .state = fields[1],
					    .tier = fields[2],
					    .partition = fields[3],
					    .offset = fields[4],
					    .param_offset = fields[5],
					    .numel = strtoull(fields[6], NULL, 10) };
	}
	f->list = list.items;
	f->n = list.count;
	return 0;
}

void fragments_free(struct fragments *f)
{
	free(f->text);
	free(f->list);
}

char *fragments_ranks(const struct fragments *f)
{
	CLEANUP(free) uint32_t *ranks = calloc(f->n + 1, sizeof(*ranks));
	char *text = NULL;
	size_t size, last;
	FILE *to = open_memstream(&text, &size);

	if (!to || !ranks) {
		if (to)
			fclose(to);
		free(text);
		return NULL;
	}
	for (size_t i = 0; i < f->n; i++)
		ranks[i] = f->list[i].rank;
	qsort(ranks, f->n, sizeof(*ranks), u32_compare);
	for (size_t i = 0; i < f->n; i = last + 1) {
		for (last = i; last + 1 < f->n && ranks[last + 1] <= ranks[last] + 1;)
			last++;
		fprintf(to, "%s%" PRIu32, i ? "," : "", ranks[i]);
		if (ranks[last] != ranks[i])
			fprintf(to, "-%" PRIu32, ranks[last]);
	}
	return text_end(to, &text);
}

char *fragments_tiers(const struct fragments *f)
{
	char *text = NULL;
	size_t size, k;
	FILE *to = open_memstream(&text, &size);

	if (!to)
		return NULL;
	for (size_t i = 0; i < f->n; i++) {
		for (k = 0; k < i && strcmp(f->list[k].tier, f->list[i].tier) != 0;)
			k++;
		if (k == i)
			fprintf(to, "%s%s", i ? "," : "", f->list[i].tier);
	}
	return text_end(to, &text);
}
