/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/fuzz/scripted.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

struct scripted scripted;

struct come {
	struct come *next;
	uint32_t peer;
	size_t size;
	uint8_t *data;
};

static struct come *first, **last = &first;

struct transport {
	const struct transport_ops *ops;
	int fd;
};

static void drop_all(void)
{
	struct come *next;

	for (struct come *c = first; c; c = next) {
		next = c->next;
		free(c->data);
		free(c);
	}
	first = NULL;
	last = &first;
}

void scripted_reset(void)
{
	drop_all();
	memset(&scripted, 0, sizeof(scripted));
}

void scripted_feed(uint32_t peer, const void *data, size_t size)
{
	struct come *c = malloc(sizeof(*c));

	*c = (struct come){ .peer = peer, .size = size, .data = malloc(size ? size : 1) };
	memcpy(c->data, data, size);
	*last = c;
	last = &c->next;
}

const struct scripted_sent *scripted_last(enum wire_type type)
{
	for (uint64_t n = scripted.nsent; n-- && scripted.nsent - n <= SCRIPTED_KEPT;)
		if (scripted.sent[n % SCRIPTED_KEPT].header.type == type)
			return &scripted.sent[n % SCRIPTED_KEPT];
	return NULL;
}

static int scripted_open(struct transport **t, const struct transport_config *config)
{
	*t = calloc(1, sizeof(**t));
	(*t)->ops = &transport_scripted;
	(*t)->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return 0;
}

static void scripted_close(struct transport *t)
{
	drop_all();
	close(t->fd);
	free(t);
}

static int scripted_fd(struct transport *t)
{
	return t->fd;
}

static const char *scripted_address(struct transport *t)
{
	return "scripted:self";
}

static int scripted_connect(struct transport *t, const char *address, uint32_t *peer)
{
	if (strncmp(address, "scripted:", 9))
		return -EINVAL;
	*peer = scripted.connected++ % SCRIPTED_PEERS;
	return 0;
}

static void scripted_disconnect(struct transport *t, uint32_t peer)
{
}

static void gather(uint8_t *to, size_t room, size_t skip, const struct iovec *parts,
		   unsigned nparts)
{
	size_t at = 0;

	for (unsigned i = 0; i < nparts;
	     i++) /* every byte is read, so that a sanitizer sees it */
		for (size_t k = 0; k < parts[i].iov_len; k++, at++)
			if (at >= skip && at - skip < room)
				to[at - skip] = ((const uint8_t *)parts[i].iov_base)[k];
}

static size_t size_of(const struct iovec *parts, unsigned nparts)
{
	size_t size = 0;

	for (unsigned i = 0; i < nparts; i++)
		size += parts[i].iov_len;
	return size;
}

static int scripted_send(struct transport *t, uint32_t peer, const struct iovec *parts,
			 unsigned nparts)
{
	struct scripted_sent *sent = &scripted.sent[scripted.nsent % SCRIPTED_KEPT];

	if (scripted.full || (scripted.large && size_of(parts, nparts) >= scripted.large))
		return -EAGAIN;
	memset(sent, 0, sizeof(*sent));
	sent->peer = peer;
	sent->size = size_of(parts, nparts);
	if (sent->size > TRANSPORT_MESSAGE_MAX)
		return -EMSGSIZE;
	gather((uint8_t *)&sent->header, sizeof(sent->header), 0, parts, nparts);
	gather(sent->body, sizeof(sent->body), sizeof(sent->header), parts, nparts);
	scripted.asked[peer % SCRIPTED_PEERS] = sent->header.request;
	scripted.nsent++;
	return 0;
}

static bool scripted_reads_only(struct transport *t, uint32_t peer)
{
	return scripted.reads_only[peer % SCRIPTED_PEERS];
}

static int scripted_turn(struct transport *t, transport_receive receive, void *owner, int max)
{
	int n = 0;

	for (; first && n < max; n++) {
		struct come *c = first;

		first = c->next;
		if (!first)
			last = &first;
		receive(owner, c->peer, c->data, c->size);
		free(c->data);
		free(c);
	}
	return n;
}

const struct transport_ops transport_scripted = {
	.name = "scripted",
	.open = scripted_open,
	.close = scripted_close,
	.fd = scripted_fd,
	.address = scripted_address,
	.connect = scripted_connect,
	.disconnect = scripted_disconnect,
	.send = scripted_send,
	.reads_only = scripted_reads_only,
	.turn = scripted_turn,
};
