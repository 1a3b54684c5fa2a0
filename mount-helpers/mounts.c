/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/mounts.h"

#include <errno.h>
#include <limits.h>
#include <mntent.h>
#include <stdlib.h>
#include <string.h>

static int append(struct mount_entry **entries, int *n, const struct mntent *e)
{
	struct mount_entry *grown = realloc(*entries, ((size_t)*n + 1) * sizeof(*grown));
	struct mount_entry copy = { strdup(e->mnt_dir), strdup(e->mnt_fsname) };

	if (grown) {
		*entries = grown;
		grown[(*n)++] = copy;
	}
	return grown && copy.mountpoint && copy.source ? 0 : -ENOMEM;
}

/* Returns true for the mounts that fragctl makes (mount-helpers/target.c). */
static bool is_private(const char *mountpoint)
{
	const char *name = strrchr(mountpoint, '/');

	return name && !strncmp(name, "/fragctl.", 9) && strlen(name + 9) == 16 &&
	       strspn(name + 9, "0123456789abcdef") == 16;
}

int mounts_read(FILE *table, bool privates, struct mount_entry **entries)
{
	struct mount_entry *list = NULL;
	char line[4 * PATH_MAX];
	struct mntent found;
	int n = 0, e = 0;

	while (!e && getmntent_r(table, &found, line, sizeof(line))) {
		if (!strcmp(found.mnt_type, "fuse.fragfs") &&
		    (privates || !is_private(found.mnt_dir)))
			e = append(&list, &n, &found);
	}
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

int mounts_read_own(bool privates, struct mount_entry **entries)
{
	FILE *table = setmntent("/proc/self/mounts", "re");
	int n = table ? mounts_read(table, privates, entries) : -errno;

	if (table)
		endmntent(table);
	return n;
}

static void ask_for_one(const struct mount_entry *entries, int n)
{
	if (n < 0)
		fprintf(stderr, "fragctl: /proc/self/mounts: %s", strerror(-n));
	if (!n)
		fputs("fragctl: nothing is mounted by fragfs here", stderr);
	for (int i = 0; i < n; i++)
		fprintf(stderr, i ? ", %s" : "fragctl: name one of these mounts: %s",
			entries[i].mountpoint);
	fputc('\n', stderr);
}

int mounts_find(const char *named, char *out, size_t size)
{
	struct mount_entry *entries = NULL;
	int n = named ? 1 : mounts_read_own(false, &entries);

	if (named || n == 1)
		snprintf(out, size, "%s", named ? named : entries[0].mountpoint);
	else
		ask_for_one(entries, n);
	if (entries)
		mounts_free(entries, n);
	return n == 1 ? 0 : -ENOENT;
}
