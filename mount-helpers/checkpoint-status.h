/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_CHECKPOINT_STATUS_H
#define MOUNT_HELPERS_CHECKPOINT_STATUS_H

/* The status of a mounted checkpoint.  A negative or NULL result is an error, of which `why`
 * (whysize bytes) has one line.
 */

#include <jansson.h>
#include <stdio.h>

int checkpoint_status_print(const char *mountpoint, FILE *to, char *why, size_t whysize);
json_t *checkpoint_status_json(const char *mountpoint, char *why, size_t whysize);

#endif
