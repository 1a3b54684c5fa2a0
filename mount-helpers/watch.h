/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_WATCH_H
#define MOUNT_HELPERS_WATCH_H

/* Events, as fragctl watch prints them. */

#include "mount-helpers/call.h"

/* Prints a line of `events`, whose JSON is event: as it is with -J, else for people. */
void watch_print(const struct call *call, const char *line, const json_t *event);

#endif
