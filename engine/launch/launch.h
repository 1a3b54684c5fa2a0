/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_LAUNCH_H
#define ENGINE_LAUNCH_LAUNCH_H

/* This process's place in its job, as frag_config and the launcher's environment say. */

#include "engine/base/base.h"
#include "engine/base/cpus.h"
#include "engine/base/machine.h"
#include "engine/frag.h"
#include "engine/launch/fabric-config.h"
#include "engine/swap/swap-config.h"

struct launch {
	uint32_t rank;
	uint32_t world;
	char job[128];
	char master_addr[128]; /* "": not given; all ranks are taken to be on one host */
	uint16_t port;         /* 0: not given */
	char rendezvous[1024]; /* path of FRAG_RDZV=file:PATH, or "" */
	char key_file[1024];   /* FRAG_KEY_FILE, or "" */
	char host[MACHINE_ID]; /* launch_host */
	bool plain;            /* FRAG_PLAIN=1: no authentication */
	bool no_memory;        /* FRAG_TRANSPORT=zmq */
	bool bulk;             /* false: FRAG_BULK=zmq */
	bool any_reads;        /* FRAG_PTRACER=any */
	bool gather_by_host;   /* FRAG_GATHER=host */
	bool is_bound;         /* FRAG_BIND */
	struct cpus bound;     /* the processors for the library's threads */
	struct swap_config swap;
	struct fabric_config fabric;
};

/* Takes each value from the first source that has it: *config, FRAG_*, torchrun, Open MPI, PMIx
 * or PMI, Slurm.
 * -EINVAL: a value is missing or bad; why has one line, which names the variable.
 */
int launch_read(struct launch *l, const struct frag_config *config, char *why, size_t whysize);

/* Sets host to FRAG_HOST, else to the machine's id.  Processes of the same host read each
 * other's memory.
 * -EINVAL: FRAG_HOST is too long.
 */
int launch_host(char host[MACHINE_ID]);

#endif
