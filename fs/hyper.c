/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/hyper.h"

#include "engine/base/element.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int hyper_format(double value, char out[HYPER_TEXT_MAX])
{
	size_t length = element_format(FRAG_F64, &value, out);

	out[length++] = '\n';
	out[length] = '\0';
	return (int)length;
}

int hyper_parse(const char *text, size_t length, double *value)
{
	char copy[HYPER_TEXT_MAX + 1], *end;
	double number;
	bool is_lost;

	if (length > HYPER_TEXT_MAX || memchr(text, '\0', length))
		return -EINVAL;
	memcpy(copy, text, length);
	copy[length] = '\0';
	errno = 0;
	number = strtod(copy, &end);
	is_lost = errno == ERANGE && (!number || isinf(number)); /* as with 1e-400 and 1e999 */
	if (end == copy)
		return -EINVAL;
	while (isspace((unsigned char)*end))
		end++;
	if (*end || is_lost)
		return *end ? -EINVAL : -ERANGE;
	*value = number;
	return 0;
}
