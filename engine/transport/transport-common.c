/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/transport-common.h"

#include "engine/base/fork.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STRANGERS_MAX = 4096 };

int transport_keep_fd(int *to, int fd)
{
	if (fd < 0)
		return -errno;
	fork_close(fd);
	*to = fd;
	return 0;
}

void transport_close_fd(int fd)
{
	if (fd < 0)
		return;
	fork_forget(fd);
	close(fd);
}

int transport_message_size(const struct iovec *parts, unsigned nparts, uint64_t *size)
{
	*size = 0;
	for (unsigned i = 0; i < nparts; i++)
		if (!u64_add(*size, parts[i].iov_len, size))
			return -EMSGSIZE;
	return *size > TRANSPORT_MESSAGE_MAX ? -EMSGSIZE : 0;
}

void transport_message_fill(void *to, const struct iovec *parts, unsigned nparts)
{
	char *at = to;

	for (unsigned i = 0; i < nparts; i++) {
		if (parts[i].iov_len)
			memcpy(at, parts[i].iov_base, parts[i].iov_len);
		at += parts[i].iov_len;
	}
}

unsigned transport_accepted_max(const struct transport_config *config)
{
	struct rlimit limit = { .rlim_cur = 0 };

	getrlimit(RLIMIT_NOFILE, &limit);
	return config->expected + (unsigned)u64_min(limit.rlim_cur / 4, STRANGERS_MAX);
}
