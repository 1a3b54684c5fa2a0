/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/fragctl.h"

#include <string.h>

void machine_chosen(const char *text, char *word, size_t size)
{
	const char *begin = strchr(text, '[');
	const char *end = begin ? strchr(begin, ']') : NULL;

	if (!end) {
		begin = text - 1;
		end = text + strcspn(text, "\n");
	}
	snprintf(word, size, "%.*s", (int)(end - begin - 1), begin + 1);
}

void machine_setting(const char *path, char *word, size_t size)
{
	FILE *file = fopen(path, "re");
	char text[128];

	if (file && fgets(text, sizeof(text), file))
		machine_chosen(text, word, size);
	else
		snprintf(word, size, "-");
	if (file)
		fclose(file);
}

void machine_read(struct machine *m)
{
	machine_setting("/sys/kernel/mm/transparent_hugepage/enabled", m->huge_pages,
			sizeof(m->huge_pages));
	machine_setting("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
			m->shared_huge_pages, sizeof(m->shared_huge_pages));
	machine_setting("/proc/sys/kernel/yama/ptrace_scope", m->yama, sizeof(m->yama));
	m->fuse = !access("/dev/fuse", R_OK | W_OK);
}
