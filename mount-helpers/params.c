/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/params.h"

#include "engine/base/base.h"
#include "engine/base/vec.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/target.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static bool matches(const char *pattern, const char *name)
{
	return !strcmp(pattern, name) || !fnmatch(pattern, name, 0);
}

/* Opens a folder below the mount. */
static DIR *open_folder(const char *mountpoint, const char *path)
{
	char whole[PATH_MAX + NAME_MAX + 8];

	snprintf(whole, sizeof(whole), "%s/%s", mountpoint, path);
	return opendir(whole);
}

/* Returns the next entry but . and ..; NULL: the end if errno is 0. */
static const char *next_name(DIR *folder)
{
	struct dirent *entry;

	do {
		errno = 0;
		entry = readdir(folder);
	} while (entry && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")));
	return entry ? entry->d_name : NULL;
}

/* ---- parameters ---- */

static int add_param(struct vec *list, const char *part, const char *folder, const char *name)
{
	struct param *p = vec_add(list, sizeof(*p));

	if (!p)
		return -ENOMEM;
	*p = (struct param){ 0 };
	if (asprintf(&p->name, "%s%s%s", part, *part ? "/" : "", name) < 0 ||
	    asprintf(&p->path, "%s/%s", folder, name) < 0)
		return -ENOMEM;
	return 0;
}

/* Adds the parameters of a folder that has params/: the mount's root, or a part. */
static int add_folder(struct vec *list, const char *mountpoint, const char *part)
{
	char folder[NAME_MAX + 16];
	const char *name;
	DIR *dir;
	int e = 0;

	snprintf(folder, sizeof(folder), "%s%sparams", part, *part ? "/" : "");
	dir = open_folder(mountpoint, folder);
	if (!dir)
		return -errno;
	while (!e && (name = next_name(dir)))
		e = add_param(list, part, folder, name);
	e = e ? e : -errno;
	closedir(dir);
	return e;
}

/* Adds the parameters of each part, a folder of the root that has params/. */
static int add_parts(struct vec *list, const char *mountpoint)
{
	DIR *dir = open_folder(mountpoint, ".");
	const char *name;
	int e = 0, parts = 0;

	if (!dir)
		return -errno;
	while (!e && (name = next_name(dir))) {
		e = add_folder(list, mountpoint, name);
		parts += !e;
		e = e == -ENOENT || e == -ENOTDIR ? 0 : e;
	}
	closedir(dir);
	return e ? e : parts ? 0 : -ENOENT;
}

static int read_all(struct params *p, const char *mountpoint)
{
	struct vec list = { 0 };
	int e = add_folder(&list, mountpoint, "");

	if (e == -ENOENT)
		e = add_parts(&list, mountpoint);
	p->list = list.items;
	p->n = list.count;
	if (!e)
		return 0;
	params_free(p);
	return e == -ENOENT
		       ? call_fail("%s: no mount of fragfs is there", target_name(mountpoint))
		       : call_fail("%s: %s", target_name(mountpoint), strerror(-e));
}

/* Keeps the parameters that match, and marks the patterns that do. */
static void keep_matching(struct params *p, char *const *patterns, bool *matched)
{
	size_t kept = 0;

	if (!*patterns)
		return;
	for (size_t i = 0; i < p->n; i++) {
		bool keep = false;

		for (size_t k = 0; patterns[k]; k++)
			if (matches(patterns[k], p->list[i].name))
				keep = matched[k] = true;
		if (keep) {
			p->list[kept++] = p->list[i];
		} else {
			free(p->list[i].name);
			free(p->list[i].path);
		}
	}
	p->n = kept;
}

/* Returns a pattern that has not matched, or NULL. */
static const char *unmatched(char *const *patterns, const bool *matched)
{
	for (size_t k = 0; patterns[k]; k++)
		if (!matched[k])
			return patterns[k];
	return NULL;
}

static size_t count_patterns(char *const *patterns)
{
	size_t n = 0;

	while (patterns[n])
		n++;
	return n;
}

static int compare_names(const void *a, const void *b)
{
	const struct param *x = *(struct param *const *)a, *y = *(struct param *const *)b;

	return strcmp(x->name, y->name);
}

static int sort(struct params *p)
{
	p->by_name = calloc(p->n + 1, sizeof(*p->by_name));
	if (!p->by_name) {
		params_free(p);
		return call_fail("%s", strerror(ENOMEM));
	}
	for (size_t i = 0; i < p->n; i++)
		p->by_name[i] = &p->list[i];
	qsort(p->by_name, p->n, sizeof(*p->by_name), compare_names);
	return 0;
}

/* Reads the parameters that match, as params_read does, and marks the patterns that do. */
static int read_matching(struct params *p, const char *mountpoint, char *const *patterns,
			 bool *matched)
{
	int rc = read_all(p, mountpoint);

	if (rc)
		return rc;
	keep_matching(p, patterns, matched);
	return sort(p);
}

int params_read_two(struct params *a, const char *mount_a, struct params *b,
		    const char *mount_b, char *const *patterns)
{
	CLEANUP(free) bool *matched = calloc(count_patterns(patterns) + 1, sizeof(*matched));
	int rc = matched ? read_matching(a, mount_a, patterns, matched)
			 : call_fail("%s", strerror(ENOMEM));
	const char *odd;

	if (!rc && b)
		rc = read_matching(b, mount_b, patterns, matched);
	odd = rc ? NULL : unmatched(patterns, matched);
	return odd ? call_fail("%s: no parameter has that name", odd) : rc;
}

int params_read(struct params *p, const char *mountpoint, char *const *patterns)
{
	int rc;

	*p = (struct params){ 0 };
	rc = params_read_two(p, mountpoint, NULL, NULL, patterns);
	if (rc)
		params_free(p);
	return rc;
}

void params_free(struct params *p)
{
	for (size_t i = 0; i < p->n; i++) {
		free(p->list[i].name);
		free(p->list[i].path);
	}
	free(p->list);
	free(p->by_name);
	*p = (struct params){ 0 };
}

/* Compares as strcmp does: a longer name comes after its own beginning. */
static int compare_to(const struct param *p, const char *name, size_t length)
{
	int order = strncmp(p->name, name, length);

	return order ? order : p->name[length] != '\0';
}

const struct param *params_find(const struct params *p, const char *name, size_t length)
{
	size_t at = LOWER_BOUND(p->n, i, compare_to(p->by_name[i], name, length) < 0);

	return at < p->n && !compare_to(p->by_name[at], name, length) ? p->by_name[at] : NULL;
}

void params_value(const char *mountpoint, const struct param *param, const char *name,
		  char *value, size_t size)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", param->path, name);
	*value = '\0';
	mount_file_value(mountpoint, path, value, size);
}

/* ---- states ---- */

/* Adds a copy of the name; NULL ends the list. */
static int add_name(struct vec *list, const char *name)
{
	char **added = vec_add(list, sizeof(*added));

	if (!added)
		return -ENOMEM;
	*added = name ? strdup(name) : NULL;
	return name && !*added ? -ENOMEM : 0;
}

char **params_names(const char *mountpoint, const char *path)
{
	DIR *dir = open_folder(mountpoint, path);
	struct vec list = { 0 };
	const char *name;
	int e = 0;

	if (!dir)
		return NULL;
	while (!e && (name = next_name(dir)))
		e = add_name(&list, name);
	e = e ? e : -errno;
	closedir(dir);
	if (!e)
		e = add_name(&list, NULL);
	if (!e)
		return list.items;
	for (uint32_t i = 0; i < list.count; i++)
		free(((char **)list.items)[i]);
	free(list.items);
	errno = -e;
	return NULL;
}

void params_free_names(char **names)
{
	for (char **name = names; name && *name; name++)
		free(*name);
	free(names);
}

/* stats/ has a folder for each state, and no other entries. */
char **params_states(const char *mountpoint, const struct param *param)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/stats", param->path);
	return params_names(mountpoint, path);
}

/* Returns true if the pattern NAME or NAME/STATE matches.  In a checkpoint with parts NAME has
 * a slash itself, behind the part's name.
 */
static bool matches_state(const char *pattern, const char *name, const char *state)
{
	const char *slash = strrchr(pattern, '/');
	char front[PATH_MAX];

	if (matches(pattern, name))
		return true;
	if (!slash || !matches(slash + 1, state))
		return false;
	snprintf(front, sizeof(front), "%.*s", (int)(slash - pattern), pattern);
	return matches(front, name);
}

static int add_states(struct vec *list, const char *mountpoint, const struct param *param,
		      char *const *patterns, bool *matched)
{
	char **states = params_states(mountpoint, param);
	struct param_state *found;
	int rc = 0;

	if (!states)
		return call_fail("%s: %s", param->name, strerror(errno));
	for (char **state = states; !rc && *state; state++) {
		bool keep = !*patterns;

		for (size_t k = 0; patterns[k]; k++)
			if (matches_state(patterns[k], param->name, *state))
				keep = matched[k] = true;
		if (!keep)
			continue;
		found = vec_add(list, sizeof(*found));
		if (found)
			*found = (struct param_state){ param, strdup(*state) };
		if (!found || !found->state)
			rc = call_fail("%s", strerror(ENOMEM));
	}
	params_free_names(states);
	return rc;
}

/* Returns true if a state of the parameter may match. */
static bool may_match(const char *name, char *const *patterns)
{
	for (size_t k = 0; patterns[k]; k++) {
		const char *slash = strrchr(patterns[k], '/');
		char front[PATH_MAX];

		snprintf(front, sizeof(front), "%.*s",
			 slash ? (int)(slash - patterns[k]) : INT_MAX, patterns[k]);
		if (matches(patterns[k], name) || matches(front, name))
			return true;
	}
	return !*patterns;
}

int params_read_states(struct param_states *s, const char *mountpoint, char *const *patterns)
{
	CLEANUP(free) bool *matched = calloc(count_patterns(patterns) + 1, sizeof(*matched));
	char *none = NULL;
	struct vec list = { 0 };
	const char *odd;
	int rc;

	*s = (struct param_states){ 0 };
	rc = matched ? params_read(&s->params, mountpoint, &none)
		     : call_fail("%s", strerror(ENOMEM));
	for (size_t i = 0; !rc && i < s->params.n; i++)
		if (may_match(s->params.list[i].name, patterns))
			rc = add_states(&list, mountpoint, &s->params.list[i], patterns,
					matched);
	s->list = list.items;
	s->n = list.count;
	odd = rc ? NULL : unmatched(patterns, matched);
	if (odd)
		rc = call_fail("%s: no parameter or state has that name", odd);
	if (rc)
		params_free_all(s);
	return rc;
}

void params_free_all(struct param_states *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->list[i].state);
	free(s->list);
	params_free(&s->params);
	*s = (struct param_states){ 0 };
}
