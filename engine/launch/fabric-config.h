/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_FABRIC_CONFIG_H
#define ENGINE_LAUNCH_FABRIC_CONFIG_H

/* Whether bulk data between ranks goes by a fabric of its own, and by which devices:
 * FRAG_FABRIC, FRAG_FABRIC_DEVICES, FRAG_FABRIC_OPEN.  frag(3) has the table.
 */

#include "engine/base/base.h"

struct fabric_config {
	bool wanted;       /* FRAG_FABRIC=ucx */
	bool open;         /* FRAG_FABRIC_OPEN=1: whoever reaches these devices is trusted */
	char devices[256]; /* as UCX_NET_DEVICES has them; "" : not given */
};

struct fabric_devices {
	bool rdma;        /* all are InfiniBand's or RoCE's; else none is */
	char address[64]; /* "ucx://10.0.0.5", of the first one */
};

/* From the environment.  -EINVAL, and why has one line. */
int fabric_config_read(struct fabric_config *c, char *why, size_t whysize);

/* Looks the devices up below sys, which is "/sys".  -EACCES: it would listen on an open
 * network; -EINVAL: none are given, or of both kinds; -ENODEV; -EADDRNOTAVAIL; and why has one
 * line.
 */
int fabric_config_devices(const struct fabric_config *c, const char *sys,
			  struct fabric_devices *devices, char *why, size_t whysize);

#endif
