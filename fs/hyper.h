/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_HYPER_H
#define FS_HYPER_H

/* A hyper-parameter's value: a float64 of the engine, a line of text for people. */

#include "engine/base/base.h"

enum { HYPER_TEXT_MAX = 64 };

/* The shortest text that reads as the same number, with a newline.  Returns its length. */
int hyper_format(double value, char out[HYPER_TEXT_MAX]);

/* -EINVAL: no number, or something behind it. */
int hyper_parse(const char *text, size_t length, double *value);

#endif
