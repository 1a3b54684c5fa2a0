/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/mounts.h"

#include <errno.h>
#include <string.h>

/* \040 is a space: proc(5). */
static void unescape(char *text)
{
	char *to = text;

	for (; *text; text++) {
		if (text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] && text[3]) {
			*to++ = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 |
				       (text[3] - '0'));
			text += 3;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

static bool has_option(const char *options, const char *name)
{
	size_t n = strlen(name);

	for (; *options; options += strcspn(options, ","), options += *options == ',') {
		if (strcspn(options, ",") == n && !strncmp(options, name, n))
			return true;
	}
	return false;
}

/* 36 35 98:0 /root /mountpoint rw,noatime shared:1 - type source rw,super
 * False: another type, or no such line.  The parts of *e point into line.
 */
static bool parse_line(char *line, struct mount_entry *e)
{
	char *tail = strstr(line, " - ");
	char *type, *super, *options, *save;
	int n;

	if (!tail)
		return false;
	*tail = '\0';
	type = strtok_r(tail + 3, " \n", &save);
	e->source = strtok_r(NULL, " \n", &save);
	super = strtok_r(NULL, " \n", &save);
	if (!super || strcmp(type, "fuse.fragfs"))
		return false;
	e->mountpoint = strtok_r(line, " ", &save);
	for (n = 1; n < 5 && e->mountpoint; n++)
		e->mountpoint = strtok_r(NULL, " ", &save);
	options = strtok_r(NULL, " ", &save);
	if (!e->mountpoint || !options)
		return false;
	unescape(e->mountpoint);
	unescape(e->source);
	e->read_only = has_option(options, "ro") || has_option(super, "ro");
	return true;
}

static int append(struct mount_entry **entries, int *n, const struct mount_entry *e)
{
	struct mount_entry *grown = realloc(*entries, ((size_t)*n + 1) * sizeof(*grown));
	struct mount_entry copy = { strdup(e->mountpoint), strdup(e->source), e->read_only };

	if (grown) {
		*entries = grown;
		grown[(*n)++] = copy;
	}
	return grown && copy.mountpoint && copy.source ? 0 : -ENOMEM;
}

int mounts_read(FILE *table, struct mount_entry **entries)
{
	struct mount_entry found, *list = NULL;
	char *line = NULL;
	size_t size = 0;
	int n = 0, e = 0;

	while (!e && getline(&line, &size, table) > 0) {
		if (parse_line(line, &found))
			e = append(&list, &n, &found);
	}
	free(line);
	if (e) {
		mounts_free(list, n);
		return e;
	}
	*entries = list;
	return n;
}

void mounts_free(struct mount_entry *entries, int n)
{
	for (int i = 0; i < n; i++) {
		free(entries[i].mountpoint);
		free(entries[i].source);
	}
	free(entries);
}
