/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/device-suite.h"

int main(void)
{
	return device_suite_run(&trainer_host, NULL);
}
