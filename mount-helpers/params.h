/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_PARAMS_H
#define MOUNT_HELPERS_PARAMS_H

/* The parameters of a mount, in its order, and their states. */

#include "mount-helpers/call.h"

struct param {
	char *name; /* "layers.0.weight"; "mp_rank_00/layers.0.weight" if there are parts */
	char *path; /* below the mount: "params/layers.0.weight" */
};

struct params {
	struct param *list;
	struct param **by_name; /* [n], the entries of list, sorted by name */
	size_t n;
};

/* Reads the parameters whose names match any of the patterns (glob(7)), or all if there are no
 * patterns.  Each pattern must match a name.  Returns the exit status; errors were printed.
 */
int params_read(struct params *p, const char *mountpoint, char *const *patterns);
/* Reads those of two mounts as params_read does, but each pattern must match a name of one of
 * them.  The caller frees both, which were zeroed, also after an error.  b NULL: there is one.
 */
int params_read_two(struct params *a, const char *mount_a, struct params *b,
		    const char *mount_b, char *const *patterns);
void params_free(struct params *p);
/* Finds the parameter whose name has these bytes; NULL: there is none. */
const struct param *params_find(const struct params *p, const char *name, size_t length);

/* Lists the names in a folder below the mount, without hidden ones; NULL ends the list, which
 * params_free_names frees.  NULL: errno says why.
 */
char **params_names(const char *mountpoint, const char *path);
void params_free_names(char **names);
/* Lists the states of a parameter, as params_names. */
char **params_states(const char *mountpoint, const struct param *param);

/* A parameter and one of its states. */
struct param_state {
	const struct param *param;
	char *state;
};

struct param_states {
	struct params params;
	struct param_state *list;
	size_t n;
};

/* Reads the states of a mount that match any of the patterns NAME or NAME/STATE. */
int params_read_states(struct param_states *s, const char *mountpoint, char *const *patterns);
void params_free_all(struct param_states *s);

/* Writes the value of a text file of the parameter, such as "shape"; "": there is no such file.
 */
void params_value(const char *mountpoint, const struct param *param, const char *name,
		  char *value, size_t size);

#endif
