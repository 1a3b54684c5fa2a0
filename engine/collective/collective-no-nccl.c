/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/collective/collective.h"

#include <errno.h>

static int no_open(struct collective **c, const struct collective_options *options,
		   unsigned rank, unsigned nranks, const struct collective_id *id)
{
	log_info("no NCCL: this fragfs was built without it");
	return -ENODEV;
}

const struct collective_ops collective_nccl = {
	.name = "nccl",
	.open = no_open,
};
