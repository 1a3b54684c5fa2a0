/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/launch/resolver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

struct resolver {
	_Atomic unsigned owners; /* the caller and the thread; the last one frees it */
	_Atomic bool done;
	int rc;
	char ip[RESOLVER_IP];
	char host[];
};
static_assert(RESOLVER_IP == INET_ADDRSTRLEN, "ip");

int resolver_wait(const char *host, char ip[RESOLVER_IP])
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	struct sockaddr_in address;

	if (getaddrinfo(host, NULL, &hints, &found))
		return -ENOENT;
	memcpy(&address, found->ai_addr, sizeof(address));
	freeaddrinfo(found);
	inet_ntop(AF_INET, &address.sin_addr, ip, RESOLVER_IP);
	return 0;
}

void resolver_forget(struct resolver *r)
{
	if (r && atomic_fetch_sub(&r->owners, 1) == 1)
		free(r);
}

static void *run(void *arg)
{
	struct resolver *r = arg;

	r->rc = resolver_wait(r->host, r->ip);
	atomic_store_explicit(&r->done, true, memory_order_release);
	resolver_forget(r);
	return NULL;
}

static int start_thread(struct resolver *r)
{
	pthread_attr_t detached;
	pthread_t thread;
	int rc;

	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	rc = thread_start_with(&thread, &detached, run, r);
	pthread_attr_destroy(&detached);
	return rc ? -ENOMEM : 0;
}

static int start(struct resolver **out, const char *host)
{
	size_t size = strlen(host) + 1;
	struct resolver *r = calloc(1, sizeof(*r) + size);
	int rc;

	if (!r)
		return -ENOMEM;
	memcpy(r->host, host, size);
	atomic_store(&r->owners, 2);
	rc = start_thread(r);
	if (rc)
		free(r);
	else
		*out = r;
	return rc;
}

int resolver_ask(struct resolver **r, const char *host, char ip[RESOLVER_IP])
{
	struct in_addr address;
	int rc;

	if (inet_pton(AF_INET, host, &address) == 1) {
		inet_ntop(AF_INET, &address, ip, RESOLVER_IP);
		return 0;
	}
	rc = *r ? 0 : start(r, host);
	if (rc)
		return rc;
	if (!atomic_load_explicit(&(*r)->done, memory_order_acquire))
		return -EAGAIN;
	rc = (*r)->rc;
	if (!rc)
		memcpy(ip, (*r)->ip, RESOLVER_IP);
	resolver_forget(*r);
	*r = NULL;
	return rc;
}
