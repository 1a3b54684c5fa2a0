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
 * -EINVAL: the text is no number, is longer than HYPER_TEXT_MAX, or goes on behind the number.
 * -ERANGE: the number is too large for a float64, or too small, so that it would become 0.
 */
int hyper_parse(const char *text, size_t length, double *value);

#endif
