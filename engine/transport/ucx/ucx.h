/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_UCX_UCX_H
#define ENGINE_TRANSPORT_UCX_UCX_H

/* libucp, loaded once at run time, and never unloaded: it has threads and constructors. */

#ifdef HAVE_UCX
#include "engine/base/base.h"

#include <ucp/api/ucp.h>

#define UCX_CALLS(X)                                                                           \
	X(ucp_am_recv_data_nbx)                                                                \
	X(ucp_am_send_nbx)                                                                     \
	X(ucp_cleanup)                                                                         \
	X(ucp_config_modify)                                                                   \
	X(ucp_config_read)                                                                     \
	X(ucp_config_release)                                                                  \
	X(ucp_ep_close_nbx)                                                                    \
	X(ucp_ep_create)                                                                       \
	X(ucp_ep_flush_nbx)                                                                    \
	X(ucp_get_version)                                                                     \
	X(ucp_init_version)                                                                    \
	X(ucp_listener_create)                                                                 \
	X(ucp_listener_destroy)                                                                \
	X(ucp_listener_reject)                                                                 \
	X(ucp_request_free)                                                                    \
	X(ucp_worker_arm)                                                                      \
	X(ucp_worker_create)                                                                   \
	X(ucp_worker_destroy)                                                                  \
	X(ucp_worker_get_efd)                                                                  \
	X(ucp_worker_progress)                                                                 \
	X(ucp_worker_set_am_recv_handler)                                                      \
	X(ucs_status_string)

struct ucx {
#define UCX_FIELD(name) __typeof__(&name) name;
	UCX_CALLS(UCX_FIELD)
#undef UCX_FIELD
};

/* Loads libucp, and first sets variables of the environment that UCX alone reads and that are
 * not set: best called before other threads read the environment.  NULL: there is no libucp, or
 * it is too old; a warning is logged.  Any thread.
 */
const struct ucx *ucx_load(void);

/* Translates a status to 0 or -errno. */
int ucx_errno(ucs_status_t status);

#endif
#endif
