/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_LAUNCH_H
#define ENGINE_LAUNCH_LAUNCH_H

/* Who this process is in its job, from frag_config and the launcher's environment. */

#include "engine/base/base.h"
#include "engine/base/machine.h"
#include "engine/frag.h"
#include "engine/launch/fabric-config.h"
#include "engine/swap/swap-config.h"

struct launch {
	uint32_t rank;
	uint32_t world;
	char job[128];
	char master_addr[128]; /* "" : none known, one host assumed */
	uint16_t port;         /* 0: not given */
	char rendezvous[1024]; /* path of FRAG_RDZV=file:PATH, or "" */
	char key_file[1024];   /* FRAG_KEY_FILE, or "" */
	char host[MACHINE_ID]; /* launch_host's */
	bool plain;            /* FRAG_PLAIN=1: no authentication */
	bool no_memory;        /* FRAG_TRANSPORT=zmq */
	bool any_reads;        /* FRAG_PTRACER=any */
	bool gather_by_host;   /* FRAG_GATHER=host */
	struct swap_config swap;
	struct fabric_config fabric;
};

/* Order: *config, FRAG_*, torchrun, Open MPI, PMIx/PMI, Slurm.  On error why has one line
 * naming the variable.  -EINVAL: none or bad.
 */
int launch_read(struct launch *l, const struct frag_config *config, char *why, size_t whysize);

/* FRAG_HOST, else the machine's id: what says that two processes share memory.  -EINVAL: too
 * long.
 */
int launch_host(char host[MACHINE_ID]);

#endif
