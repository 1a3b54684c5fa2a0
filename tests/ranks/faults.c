/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/faults.h"

#include <check.h>
#include <string.h>

enum { FAULTS_MAX = 16 };

struct held { /* a message that is sent late, or that is behind such a message */
	struct held *next;
	struct transport *from;
	uint32_t peer;
	unsigned turns;
	size_t size;
	uint8_t data[];
};

static const struct transport_ops *inner;
static struct fault faults[FAULTS_MAX];
static unsigned nfaults;
static struct held *held;

const struct fault *faults_add(const struct fault *fault)
{
	ck_assert_uint_lt(nfaults, FAULTS_MAX);
	faults[nfaults] = *fault;
	return &faults[nfaults++];
}

static void send_held(struct transport *from, bool all)
{
	for (struct held *h, **at = &held; (h = *at);) {
		struct iovec part = { h->data, h->size };

		if (!all && (h->from != from || (h->turns && h->turns--))) {
			at = &h->next;
			continue;
		}
		*at = h->next;
		inner->send(h->from, h->peer, &part, 1);
		free(h);
	}
}

void faults_clear(void)
{
	if (inner)
		send_held(NULL, true);
	nfaults = 0;
}

static struct fault *fault_of(enum fault_call call, const struct transport *of,
			      enum wire_type type)
{
	for (unsigned i = 0; i < nfaults; i++) {
		struct fault *f = &faults[i];
		unsigned nth = f->nth ? f->nth : 1, count = f->count ? f->count : 1;

		if (f->call != call || (f->type && f->type != type) || (f->of && f->of != of))
			continue;
		if (++f->calls >= nth && f->calls - nth < count) {
			f->fired++;
			return f;
		}
	}
	return NULL;
}

static unsigned turns_behind(const struct transport *t, uint32_t peer)
{
	unsigned turns = 0;

	for (const struct held *h = held; h; h = h->next)
		if (h->from == t && h->peer == peer && h->turns > turns)
			turns = h->turns;
	return turns;
}

static void append_held(struct held *h)
{
	struct held **at = &held;

	while (*at)
		at = &(*at)->next;
	*at = h;
}

static struct held *copy_of(struct transport *t, uint32_t peer, const struct iovec *parts,
			    unsigned nparts)
{
	struct held *h;
	size_t size = 0, at = 0;

	for (unsigned i = 0; i < nparts; i++)
		size += parts[i].iov_len;
	h = malloc(sizeof(*h) + size + sizeof(struct wire_ack));
	ck_assert_ptr_nonnull(h);
	*h = (struct held){ .from = t, .peer = peer, .size = size };
	for (unsigned i = 0; i < nparts; at += parts[i++].iov_len)
		if (parts[i].iov_len)
			memcpy(h->data + at, parts[i].iov_base, parts[i].iov_len);
	return h;
}

static void turn_into_ack(struct held *h, int status)
{
	struct wire_header header;
	struct wire_ack ack = { .status = status };

	memcpy(&header, h->data, sizeof(header));
	header.type = WIRE_ACK;
	memcpy(h->data, &header, sizeof(header));
	memcpy(h->data + sizeof(header), &ack, sizeof(ack));
	h->size = sizeof(header) + sizeof(ack);
}

static void change(struct held *h, const struct fault *f)
{
	h->size -= f->cut < h->size ? f->cut : h->size;
	if (f->acked)
		turn_into_ack(h, f->result);
	if (f->poked)
		memcpy(h->data + sizeof(struct wire_header) + f->poke_at, &f->poke,
		       sizeof(f->poke));
}

static int faulty_send(struct transport *t, uint32_t peer, const struct iovec *parts,
		       unsigned nparts)
{
	unsigned turns = turns_behind(t, peer);
	struct wire_header header;
	struct fault *f;
	struct held *h;

	memcpy(&header, parts[0].iov_base, sizeof(header));
	f = fault_of(FAULT_SEND, t, header.type);
	if (f && !f->delay && !f->cut && !f->acked && !f->poked)
		return f->result;
	if (!f && !turns)
		return inner->send(t, peer, parts, nparts);
	h = copy_of(t, peer, parts, nparts);
	h->turns = f && f->delay > turns ? f->delay : turns;
	if (f)
		change(h, f);
	append_held(h);
	return 0;
}

static int faulty_turn(struct transport *t, transport_receive receive, void *owner, int max)
{
	send_held(t, false);
	return inner->turn(t, receive, owner, max);
}

static int faulty_open(struct transport **t, const struct transport_config *config)
{
	struct fault *f = fault_of(FAULT_OPEN, NULL, 0);

	return f ? f->result : inner->open(t, config);
}

static void faulty_close(struct transport *t)
{
	for (struct held *h, **at = &held; (h = *at);) {
		if (h->from != t) {
			at = &h->next;
			continue;
		}
		*at = h->next;
		free(h);
	}
	inner->close(t);
}

static int faulty_connect(struct transport *t, const char *address, uint32_t *peer)
{
	struct fault *f = fault_of(FAULT_CONNECT, t, 0);

	return f ? f->result : inner->connect(t, address, peer);
}

static int faulty_attach(struct transport *t, const struct transport_target *target,
			 uint32_t *peer)
{
	struct fault *f = fault_of(FAULT_ATTACH, t, 0);

	return f ? f->result : inner->attach(t, target, peer);
}

static int faulty_get(struct transport *t, uint32_t peer, const struct iovec *local,
		      unsigned nlocal, const struct iovec *remote, unsigned nremote,
		      void *control, size_t control_size)
{
	struct fault *f = fault_of(FAULT_GET, t, 0);

	return f ? f->result
		 : inner->get(t, peer, local, nlocal, remote, nremote, control, control_size);
}

const struct transport_ops *faults_over(const struct transport_ops *ops)
{
	static struct transport_ops faulty;

	faulty = *ops;
	inner = ops;
	faulty.open = faulty_open;
	faulty.close = faulty_close;
	if (ops->send) {
		faulty.connect = faulty_connect;
		faulty.send = faulty_send;
		faulty.turn = faulty_turn;
	}
	if (ops->get) {
		faulty.attach = faulty_attach;
		faulty.get = faulty_get;
	}
	return &faulty;
}
