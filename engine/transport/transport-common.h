/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_COMMON_H
#define ENGINE_TRANSPORT_TRANSPORT_COMMON_H

/* Code shared by the transports over networks.  Owner's thread. */

#include "engine/transport/transport.h"

/* Bounds on the bytes of messages that wait to be sent, to one peer and to all.  Messages below
 * TRANSPORT_QUEUE_SMALL are bounded by their number alone.
 */
enum {
	TRANSPORT_QUEUE_SMALL = 16 << 10,
	TRANSPORT_QUEUE_PEER = 64 << 20,
	TRANSPORT_QUEUE_ALL = 512 << 20,
};

/* How often in a row a peer hangs up on us before it counts as one that refuses us: once may be
 * the end of a process that would have taken us.
 */
enum { TRANSPORT_HANGUPS = 2 };

/* Stores a descriptor that was just opened in *to, and has it closed in forked children; fd <
 * 0: returns -errno.  transport_close_fd closes it, and does nothing with -1.
 */
int transport_keep_fd(int *to, int fd);
void transport_close_fd(int fd);

/* Sums up the parts.  -EMSGSIZE: more than a message may have. */
int transport_message_size(const struct iovec *parts, unsigned nparts, uint64_t *size);

/* Copies all parts, one behind the other. */
void transport_message_fill(void *to, const struct iovec *parts, unsigned nparts);

/* Returns how many connections are accepted: the expected ones, and for strangers a quarter of
 * the descriptors that the process may open.
 */
unsigned transport_accepted_max(const struct transport_config *config);

#endif
