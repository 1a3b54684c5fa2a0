/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_HYPER_H
#define FS_HYPER_H

/* Converts a hyper-parameter's value between the engine's float64 and the line of its file. */

#include "engine/base/base.h"

enum { HYPER_TEXT_MAX = 64 };

/* Writes the text with the fewest digits that reads as the same number, and a newline; returns
 * its length.
 */
int hyper_format(double value, char out[HYPER_TEXT_MAX]);

/* Reads the number.
 * -EINVAL: the text is none, is longer than HYPER_TEXT_MAX, or goes on behind it.
 * -ERANGE: a float64 cannot be so large, or would be 0 although the number is not.
 */
int hyper_parse(const char *text, size_t length, double *value);

#endif
