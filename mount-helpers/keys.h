/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_KEYS_H
#define MOUNT_HELPERS_KEYS_H

/* fragctl key: a new key file for a job; of one that is there, the key for readers. */

#include "engine/base/base.h"

/* Both 0, or -errno with one line in why. */
int keys_make(const char *path, char *why, size_t whysize);
int keys_print_readers(const char *path, char *why, size_t whysize);

#endif
