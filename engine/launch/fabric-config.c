/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/launch/fabric-config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/stat.h>

int fabric_config_read(struct fabric_config *c, char *why, size_t whysize)
{
	const char *fabric = env_text("FRAG_FABRIC"), *open = env_text("FRAG_FABRIC_OPEN");
	const char *devices = env_text("FRAG_FABRIC_DEVICES");

	*c = (struct fabric_config){ .wanted = fabric, .open = open && *open == '1' };
	if (fabric && strcmp(fabric, "ucx") != 0)
		snprintf(why, whysize, "FRAG_FABRIC=%.40s is not ucx", fabric);
	else if (open && strcmp(open, "0") != 0 && strcmp(open, "1") != 0)
		snprintf(why, whysize, "FRAG_FABRIC_OPEN=%.40s is neither 0 nor 1", open);
	else if (devices && strlen(devices) >= sizeof(c->devices))
		snprintf(why, whysize, "FRAG_FABRIC_DEVICES is longer than %zu bytes",
			 sizeof(c->devices) - 1);
	else
		return snprintf(c->devices, sizeof(c->devices), "%s", devices ? devices : "") <
		       0;
	return -EINVAL;
}

/* ---- devices ---- */

static bool is_there(const char *sys, const char *class, const char *name)
{
	struct stat st;
	char path[512];

	snprintf(path, sizeof(path), "%s/class/%s/%s", sys, class, name);
	return *name && !strchr(name, '/') && *name != '.' && !stat(path, &st);
}

/* Finds the network device of an InfiniBand device's port, which has its IPv4 address. */
static int netdev_of_port(const char *sys, const char *device, unsigned port, char name[64])
{
	char path[512];
	FILE *file;
	int n;

	snprintf(path, sizeof(path), "%s/class/infiniband/%s/ports/%u/gid_attrs/ndevs/0", sys,
		 device, port);
	file = fopen(path, "re");
	if (!file)
		return -ENODEV;
	n = fscanf(file, "%63s", name);
	fclose(file);
	return n == 1 ? 0 : -ENODEV;
}

/* Puts the network device of "eth0" (returns 0) or "mlx5_0:1" (InfiniBand: returns 1) into
 * name.
 * -ENODEV
 */
static int look_up(const char *sys, const char *text, char name[64])
{
	unsigned port = 1;
	char device[64];

	if (strlen(text) < 64 && is_there(sys, "net", text)) {
		snprintf(name, 64, "%s", text);
		return 0;
	}
	if (sscanf(text, "%63[^:]:%u", device, &port) < 1 ||
	    !is_there(sys, "infiniband", device))
		return -ENODEV;
	return netdev_of_port(sys, device, port, name) ? -ENODEV : 1;
}

/* Finds the device's IPv4 address.
 * -EADDRNOTAVAIL: it has none.
 * -ENETDOWN: it is down; UCX would not use it even if it came up later.
 */
static int address_of(const char *name, char *address, size_t size)
{
	struct ifaddrs *all, *i;
	char text[INET_ADDRSTRLEN] = "";
	bool runs = false;

	if (getifaddrs(&all))
		return -errno;
	for (i = all; i && !*text; i = i->ifa_next)
		if (!strcmp(i->ifa_name, name) && i->ifa_addr &&
		    i->ifa_addr->sa_family == AF_INET) {
			inet_ntop(AF_INET,
				  &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, text,
				  sizeof(text));
			runs = i->ifa_flags & IFF_RUNNING;
		}
	freeifaddrs(all);
	snprintf(address, size, "ucx://%s", text);
	return !*text ? -EADDRNOTAVAIL : runs ? 0 : -ENETDOWN;
}

/* Looks up all devices, and puts the first one's network device into name. */
static int look_up_all(const struct fabric_config *c, const char *sys,
		       struct fabric_devices *devices, char name[64], char *why, size_t whysize)
{
	char list[sizeof(c->devices)], other[64], *rest = list, *text;
	int kind, first = -1;

	memcpy(list, c->devices, sizeof(list));
	while ((text = strsep(&rest, ","))) {
		kind = look_up(sys, text, first < 0 ? name : other);
		if (kind < 0)
			snprintf(why, whysize, "FRAG_FABRIC_DEVICES: there is no device %.60s",
				 text);
		else if (first >= 0 && kind != first)
			snprintf(why, whysize,
				 "FRAG_FABRIC_DEVICES=%.60s are of two kinds, InfiniBand and "
				 "others",
				 c->devices);
		if (kind < 0 || (first >= 0 && kind != first))
			return kind < 0 ? kind : -EINVAL;
		first = kind;
	}
	devices->rdma = first == 1;
	return 0;
}

int fabric_config_devices(const struct fabric_config *c, const char *sys,
			  struct fabric_devices *devices, char *why, size_t whysize)
{
	char name[64];
	int rc;

	if (!c->devices[0]) {
		snprintf(why, whysize,
			 "FRAG_FABRIC_DEVICES does not say which devices to use: UCX would "
			 "listen on all, and accept anybody as a rank");
		return -EINVAL;
	}
	rc = look_up_all(c, sys, devices, name, why, whysize);
	if (rc)
		return rc;
	if (!devices->rdma && !c->open) {
		snprintf(
			why, whysize,
			"%.60s is no InfiniBand device, and UCX accepts anybody who reaches it "
			"as a rank: FRAG_FABRIC_OPEN=1 says that only ranks reach it",
			c->devices);
		return -EACCES;
	}
	rc = address_of(name, devices->address, sizeof(devices->address));
	if (rc)
		snprintf(why, whysize,
			 rc == -ENETDOWN ? "%s is down" : "%s has no IPv4 address", name);
	return rc;
}
