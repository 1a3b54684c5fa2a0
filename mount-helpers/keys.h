/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_KEYS_H
#define MOUNT_HELPERS_KEYS_H

/* fragctl key: makes a new key file for a job, or prints the readers' key of an existing one.
 */

#include "engine/base/base.h"

/* Both return 0, or -errno with one line in why. */
int keys_make(const char *path, char *why, size_t whysize);
int keys_print_readers(const char *path, char *why, size_t whysize);

#endif
