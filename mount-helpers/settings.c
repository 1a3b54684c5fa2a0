/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/settings.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void settings_chosen(const char *text, char *word, size_t size)
{
	const char *begin = strchr(text, '[');
	const char *end = begin ? strchr(begin, ']') : NULL;

	if (!end) {
		begin = text - 1;
		end = text + strcspn(text, "\n");
	}
	snprintf(word, size, "%.*s", (int)(end - begin - 1), begin + 1);
}

void settings_get(const char *path, char *word, size_t size)
{
	FILE *file = fopen(path, "re");
	char text[128];

	if (file && fgets(text, sizeof(text), file))
		settings_chosen(text, word, size);
	else
		snprintf(word, size, "-");
	if (file)
		fclose(file);
}

void settings_read(struct settings *m)
{
	settings_get("/sys/kernel/mm/transparent_hugepage/enabled", m->huge_pages,
		     sizeof(m->huge_pages));
	settings_get("/sys/kernel/mm/transparent_hugepage/shmem_enabled", m->shared_huge_pages,
		     sizeof(m->shared_huge_pages));
	settings_get("/proc/sys/kernel/yama/ptrace_scope", m->yama, sizeof(m->yama));
	m->fuse = !access("/dev/fuse", R_OK | W_OK);
}
