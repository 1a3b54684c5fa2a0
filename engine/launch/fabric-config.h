/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_FABRIC_CONFIG_H
#define ENGINE_LAUNCH_FABRIC_CONFIG_H

/* The fabric, a network of its own for bulk data between ranks: FRAG_FABRIC,
 * FRAG_FABRIC_DEVICES and FRAG_FABRIC_OPEN of frag(3).
 */

#include "engine/base/base.h"

struct fabric_config {
	bool wanted;       /* FRAG_FABRIC=ucx */
	bool open;         /* FRAG_FABRIC_OPEN=1: every process that reaches them is trusted */
	char devices[256]; /* FRAG_FABRIC_DEVICES, for UCX_NET_DEVICES; "": not set */
};

struct fabric_devices {
	bool rdma;        /* true: all are InfiniBand or RoCE; false: none is */
	char address[64]; /* of the first device: "ucx://10.0.0.5" */
};

/* Reads the environment.
 * -EINVAL: a value is bad; why has one line.
 */
int fabric_config_read(struct fabric_config *c, char *why, size_t whysize);

/* Looks the devices up below sys ("/sys"; tests have their own).  With an error, why has one
 * line.
 * -EACCES: a device is open to other processes, and c->open is false.
 * -EINVAL: no device is named, or devices of both kinds.
 * -ENODEV: no such device.
 * -EADDRNOTAVAIL: the first device has no IPv4 address.
 * -ENETDOWN: the first device is down.
 */
int fabric_config_devices(const struct fabric_config *c, const char *sys,
			  struct fabric_devices *devices, char *why, size_t whysize);

#endif
