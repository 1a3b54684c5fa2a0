/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* mute-peer: listens on a port of 127.0.0.1, prints it, takes connections and never says
 * anything.
 */

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (listener < 0 || bind(listener, (struct sockaddr *)&at, size) ||
	    listen(listener, 16) || getsockname(listener, (struct sockaddr *)&at, &size))
		return 1;
	printf("%u\n", ntohs(at.sin_port));
	fflush(stdout);
	for (;;)
		if (accept(listener, NULL, NULL) < 0)
			pause();
}
