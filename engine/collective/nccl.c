/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/collective/nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

enum { VERSION_MIN = NCCL_VERSION(2, 18, 0) };

/* Returns the first function that the library lacks; NULL: it has all. */
static const char *find_all(struct nccl *nccl, void *library)
{
#define FIND(name)                                                                             \
	if (!library_find(library, "nccl" #name, &nccl->name))                                 \
		return "nccl" #name;
	NCCL_CALLS(FIND)
#undef FIND
	return NULL;
}

static int check_version(struct nccl *nccl, char *why, size_t size)
{
	if (nccl->GetVersion(&nccl->version) != ncclSuccess)
		nccl->version = 0;
	if (nccl->version >= VERSION_MIN)
		return 0;
	snprintf(why, size, "NCCL %d is older than %d", nccl->version, VERSION_MIN);
	return -ENODEV;
}

int nccl_load(struct nccl *nccl, const char *library, char *why, size_t size)
{
	void *handle = dlopen(library ? library : "libnccl.so.2",
			      RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	const char *lacking;

	if (!handle) {
		snprintf(why, size, "no NCCL: %s", dlerror());
		return -ENODEV;
	}
	lacking = find_all(nccl, handle);
	/* RTLD_NODELETE: the library stays */
	dlclose(handle);
	if (!lacking)
		return check_version(nccl, why, size);
	snprintf(why, size, "NCCL is too old: it has no %s", lacking);
	return -ENODEV;
}
