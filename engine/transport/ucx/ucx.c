/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/transport/ucx/ucx.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

enum { OLDEST_MAJOR = 1, OLDEST_MINOR = 12 };

/* Settings that UCX takes from the environment alone.  By default it catches the trainer's
 * signals, replaces its malloc's calls, and writes to its stdout.  With puts its tcp transport
 * aborts when a peer dies in the middle.
 */
static const struct {
	const char *name, *value;
} settings[] = {
	{ "UCX_HANDLE_ERRORS", "none" },     { "UCX_DEBUG_SIGNO", "0" },
	{ "UCX_MEM_EVENTS", "n" },           { "UCX_LOG_LEVEL", "fatal" },
	{ "UCX_WARN_UNUSED_ENV_VARS", "n" }, { "UCX_TCP_PUT_ENABLE", "n" },
	{ "UCX_TCP_CM_REUSEADDR", "y" },     { "UCX_TCP_TX_SEG_SIZE", "256k" },
	{ "UCX_TCP_RX_SEG_SIZE", "256k" },   { "UCX_TCP_KEEPIDLE", "1s" },
	{ "UCX_TCP_KEEPINTVL", "1s" },       { "UCX_TCP_KEEPCNT", "3" },
};

static struct ucx calls;
static bool loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool find_symbol(void *library, const char *name, void *function)
{
	bool found = library_find(library, name, function);

	if (!found)
		log_warn("no UCX: this libucp has no %s", name);
	return found;
}

static bool find_all(void *library)
{
#define FIND(name)                                                                             \
	if (!find_symbol(library, #name, &calls.name))                                         \
		return false;
	UCX_CALLS(FIND)
#undef FIND
	return true;
}

static bool is_new_enough(void)
{
	unsigned major, minor, release;

	calls.ucp_get_version(&major, &minor, &release);
	if (major == OLDEST_MAJOR && minor >= OLDEST_MINOR)
		return true;
	log_warn("no UCX: libucp is %u.%u.%u, and not 1.%d or later", major, minor, release,
		 OLDEST_MINOR);
	return false;
}

static void load(void)
{
	void *library;

	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		setenv(settings[i].name, settings[i].value, 0);
	library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		log_warn("no UCX: %s", dlerror());
	else if (find_symbol(library, "ucp_get_version", &calls.ucp_get_version) &&
		 is_new_enough() && find_all(library))
		loaded = true;
	else
		dlclose(library);
}

const struct ucx *ucx_load(void)
{
	pthread_once(&once, load);
	return loaded ? &calls : NULL;
}

int ucx_errno(ucs_status_t status)
{
	switch (status) {
	case UCS_OK:
		return 0;
	case UCS_ERR_BUSY:
		return -EADDRINUSE;
	case UCS_ERR_NO_MEMORY:
		return -ENOMEM;
	case UCS_ERR_NO_DEVICE:
	case UCS_ERR_INVALID_ADDR:
	case UCS_ERR_UNREACHABLE:
		return -EADDRNOTAVAIL;
	default:
		return -EIO;
	}
}
