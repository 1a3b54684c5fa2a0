/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_CHECKPOINT_STATUS_H
#define MOUNT_HELPERS_CHECKPOINT_STATUS_H

/* fragctl status of a mounted checkpoint, read from its .frag/config and .frag/source. */

#include "engine/base/base.h"

#include <jansson.h>
#include <stdio.h>

/* Returns true if a checkpoint is mounted there. */
bool checkpoint_status_is(const char *mountpoint);
/* -errno: why has one line. */
int checkpoint_status_print(const char *mountpoint, FILE *to, char *why, size_t whysize);
/* NULL: why has one line. */
json_t *checkpoint_status_json(const char *mountpoint, char *why, size_t whysize);

#endif
