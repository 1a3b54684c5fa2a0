/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/transport/transport.h"

#include <errno.h>

static int no_open(struct transport **t, const struct transport_config *config)
{
	log_warn("no UCX: this fragfs was built without");
	return -ENOTSUP;
}

const struct transport_ops transport_ucx = {
	.name = "ucx",
	.open = no_open,
};
