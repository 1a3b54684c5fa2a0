/* SPDX-License-Identifier: Apache-2.0 */

/* A libucp.so.0 that has only its version, OTHER_UCP. */

#include <stdio.h>
#include <stdlib.h>

__attribute__((visibility("default"))) void ucp_get_version(unsigned *major, unsigned *minor,
							    unsigned *release);

void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
	const char *text = getenv("OTHER_UCP");

	if (!text || sscanf(text, "%u.%u.%u", major, minor, release) != 3)
		abort();
}
