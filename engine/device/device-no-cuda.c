/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/device/device.h"

#include <errno.h>

static int no_open(struct device **d, const struct device_options *options)
{
	log_info("no CUDA devices: this fragfs was built without CUDA");
	return -ENODEV;
}

const struct device_ops device_cuda = {
	.name = "cuda",
	.open = no_open,
};
