/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_HYPER_H
#define FS_HYPER_H

/* A hyper-parameter: a float64 of the engine, a line of text for people. */

#include "engine/engine.h"

enum { HYPER_TEXT_MAX = 64 };

/* Waits for the engine, which has its values at hand, so that this is called by a handler. */
int hyper_get(struct engine *e, struct engine_file *file, double *value);

/* The shortest text that reads as the same number, with a newline.  Returns its length. */
int hyper_format(double value, char out[HYPER_TEXT_MAX]);

/* -EINVAL: no number, or something behind it. */
int hyper_parse(const char *text, size_t length, double *value);

#endif
