/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COLLECTIVE_NCCL_H
#define ENGINE_COLLECTIVE_NCCL_H

/* NCCL, loaded at run time. */

#include "engine/base/base.h"

#ifdef HAVE_NCCL
#include <nccl.h>

#define NCCL_CALLS(X)                                                                          \
	X(AllGather)                                                                           \
	X(CommAbort)                                                                           \
	X(CommDestroy)                                                                         \
	X(CommFinalize)                                                                        \
	X(CommGetAsyncError)                                                                   \
	X(CommInitRankConfig)                                                                  \
	X(GetErrorString)                                                                      \
	X(GetLastError)                                                                        \
	X(GetUniqueId)                                                                         \
	X(GetVersion)                                                                          \
	X(GroupEnd)                                                                            \
	X(GroupStart)                                                                          \
	X(Recv)                                                                                \
	X(Send)

struct nccl {
	int version;
#define NCCL_FIELD(name) __typeof__(&nccl##name) name;
	NCCL_CALLS(NCCL_FIELD)
#undef NCCL_FIELD
};

/* Loads the library; NULL: by its usual name.  It is never unloaded, because its threads may
 * outlive a communicator.
 * -ENODEV: there is none, or it is too old; why says which.
 */
int nccl_load(struct nccl *nccl, const char *library, char *why, size_t size);

#endif
#endif
