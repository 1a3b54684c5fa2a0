/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_TRANSPORT_SOCKETS_H
#define TESTS_UNIT_TRANSPORT_SOCKETS_H

/* The sockets of this process. */

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>

static inline int count_sockets(void)
{
	struct dirent *entry;
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir && (entry = readdir(dir))) {
		struct stat st;

		n += entry->d_name[0] != '.' && !fstat(atoi(entry->d_name), &st) &&
		     S_ISSOCK(st.st_mode);
	}
	if (dir)
		closedir(dir);
	return n;
}

/* Returns how many descriptors have that port, of those that listen and of connections. */
static inline int count_at_port(int port)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++) {
		struct sockaddr_in name = { .sin_family = AF_UNSPEC };
		socklen_t size = sizeof(name);

		n += !getsockname(fd, (struct sockaddr *)&name, &size) &&
		     name.sin_family == AF_INET && ntohs(name.sin_port) == port;
	}
	return n;
}

#endif
