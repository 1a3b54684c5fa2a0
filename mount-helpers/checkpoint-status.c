/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/checkpoint-status.h"

#include "engine/base/one-line.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/target.h"

#include <errno.h>
#include <string.h>

static int read_texts(const char *mountpoint, char **config, char **source, char *why,
		      size_t whysize)
{
	int rc = mount_file_read(mountpoint, ".frag/config", config);

	if (!rc) {
		rc = mount_file_read(mountpoint, ".frag/source", source);
		if (rc)
			free(*config);
	}
	if (rc)
		snprintf(why, whysize, "%s/.frag: %s", target_name(mountpoint), strerror(-rc));
	return rc;
}

/* Calls see() for each line "NAME VALUE" of the text, which is cut into them. */
static void each_line(char *text, void (*see)(void *arg, const char *name, const char *value),
		      void *arg)
{
	char *rest, *line = strtok_r(text, "\n", &rest);

	for (; line; line = strtok_r(NULL, "\n", &rest)) {
		char *space = strchr(line, ' ');

		if (space)
			*space = '\0';
		see(arg, line, space ? space + 1 : "");
	}
}

/* ---- for people ---- */

static void print_line(void *to, const char *name, const char *value)
{
	fprintf(to, "  %-10s %s\n", name, value);
}

int checkpoint_status_print(const char *mountpoint, FILE *to, char *why, size_t whysize)
{
	char *config, *source;
	int rc = read_texts(mountpoint, &config, &source, why, whysize);

	if (rc)
		return rc;
	fprintf(to, "%s: a checkpoint\n", target_name(mountpoint));
	each_line(config, print_line, to);
	each_line(source, print_line, to);
	free(config);
	free(source);
	return 0;
}

/* ---- for programs ---- */

static json_t *value_json(const char *value)
{
	char *end;
	long long number = strtoll(value, &end, 10);

	return *value && !*end ? json_integer(number) : one_line_json(value);
}

static void set_config(void *object, const char *name, const char *value)
{
	json_object_set_new(object, name, value_json(value));
}

/* Appends a pair: some names of .frag/source come more than once, so the list is no object. */
static void add_source(void *list, const char *name, const char *value)
{
	json_array_append_new(list, json_pack("[s, o]", name, value_json(value)));
}

json_t *checkpoint_status_json(const char *mountpoint, char *why, size_t whysize)
{
	json_t *object = json_object(), *list = json_array();
	char *config, *source;

	if (read_texts(mountpoint, &config, &source, why, whysize)) {
		json_decref(object);
		json_decref(list);
		return NULL;
	}
	json_object_set_new(object, "mountpoint", one_line_json(mountpoint));
	each_line(config, set_config, object);
	each_line(source, add_source, list);
	json_object_set_new(object, "source", list);
	free(config);
	free(source);
	return object;
}
