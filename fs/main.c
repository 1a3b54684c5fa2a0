/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/mount.h"

#include "engine/frag.h"

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

static int run(struct options *o, int argc, char **argv)
{
	char why[512];

	if (options_parse(o, argc, argv, why, sizeof(why))) {
		fprintf(stderr, "fragfs: %s\n", why);
		return 2;
	}
	if (o->help) {
		options_help(stdout, "fragfs");
		return 0;
	}
	if (o->version) {
		printf("fragfs %s\nlibfuse %s\n", frag_version(), fuse_pkgversion());
		return 0;
	}
	return mount_run(o);
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	int status = run(&o, argc, argv);

	options_fini(&o);
	return status;
}
