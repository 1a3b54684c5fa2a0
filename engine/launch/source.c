/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/launch/jobfile.h"
#include "engine/launch/keyfile.h"
#include "engine/launch/resolver.h"
#include "engine/launch/source.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { PROBE_MS = 3000 }; /* the longest wait for an address to accept a connection */

struct host_port {
	char host[256];
	char port[8];
};

/* Takes the next HOST:PORT from *at.  Returns 1, 0: none is left, -EINVAL. */
static int next_peer(const char **at, struct host_port *peer, const char *source, char *why,
		     size_t size)
{
	size_t length = strcspn(*at, ","), host;
	const char *colon;
	char *end;
	long port;

	if (!length)
		return 0;
	colon = memrchr(*at, ':', length);
	host = colon ? (size_t)(colon - *at) : 0;
	port = colon ? strtol(colon + 1, &end, 10) : 0;
	if (!host || host >= sizeof(peer->host) || port < 1 || port > 65535 ||
	    end != *at + length) {
		snprintf(why, size,
			 "%s is neither a file or folder that is here, nor a job of this "
			 "host, nor HOST:PORT[,HOST:PORT]",
			 source);
		return -EINVAL;
	}
	snprintf(peer->host, sizeof(peer->host), "%.*s", (int)host, *at);
	snprintf(peer->port, sizeof(peer->port), "%ld", port);
	*at += length + ((*at)[length] == ',');
	return 1;
}

bool source_is_address(const char *source)
{
	const char *at = source;
	struct host_port peer;
	char why[1];

	return !strchr(source, '/') && next_peer(&at, &peer, source, why, sizeof(why)) > 0;
}

bool source_is_path(const char *source)
{
	/* ENOTCONN: a FUSE file system is mounted there whose program has ended */
	return strchr(source, '/') ||
	       (!source_is_address(source) && (!access(source, F_OK) || errno == ENOTCONN));
}

const char *source_address(const char *source, struct jobfile *job)
{
	return !source_is_address(source) && !jobfile_find(source, job) ? job->address : source;
}

static int resolve(const struct host_port *peer, struct sockaddr_in *address, char *why,
		   size_t size)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	int rc = getaddrinfo(peer->host, peer->port, &hints, &found);

	if (rc) {
		snprintf(why, size, "%s: %s", peer->host, gai_strerror(rc));
		return -ENOENT;
	}
	memcpy(address, found->ai_addr, sizeof(*address));
	freeaddrinfo(found);
	return 0;
}

int source_parse(const char *source, char *seeds, size_t size, char *why, size_t whysize)
{
	const char *at = source;
	struct host_port peer;
	size_t used = 0;
	int rc;

	seeds[0] = '\0';
	while ((rc = next_peer(&at, &peer, source, why, whysize)) > 0) {
		struct sockaddr_in address;
		char ip[INET_ADDRSTRLEN];

		rc = resolve(&peer, &address, why, whysize);
		if (rc)
			return rc;
		inet_ntop(AF_INET, &address.sin_addr, ip, sizeof(ip));
		used += (size_t)snprintf(seeds + used, size - used, "%stcp://%s:%s",
					 used ? "," : "", ip, peer.port);
		if (used >= size)
			return -ENAMETOOLONG;
	}
	if (!rc && !used) {
		snprintf(why, whysize, "'%s' is not HOST:PORT[,HOST:PORT]", source);
		return -EINVAL;
	}
	return rc;
}

int source_ask(const char *source, const char **at, struct resolver **r, char *seed,
	       size_t size)
{
	const char *next = *at && **at ? *at : source;
	char ip[RESOLVER_IP], why[1];
	struct host_port peer;
	int rc;

	if (next_peer(&next, &peer, source, why, sizeof(why)) <= 0)
		return -EINVAL;
	rc = resolver_ask(r, peer.host, ip);
	if (rc == -EAGAIN)
		return rc;
	*at = next;
	if (!rc)
		snprintf(seed, size, "tcp://%s:%s", ip, peer.port);
	return rc;
}

static int load(const char *path, bool writable, struct source_key *key, char *why, size_t size)
{
	int rc = keyfile_load(path, key->bytes, &key->reads_only, why, size);

	key->is_there = !rc;
	if (!rc && key->reads_only && writable) {
		snprintf(why, size, "key file %s: it is for readers only (-o ro)", path);
		return -EACCES;
	}
	if (rc || key->reads_only || writable)
		return rc;
	key->reads_only = true;
	rc = key_for_readers(key->bytes, key->bytes);
	if (rc)
		snprintf(why, size, "this libzmq has no CURVE");
	return rc;
}

int source_key(const struct engine_options *o, struct source_key *key, char *why,
	       size_t whysize)
{
	const char *environment = getenv("FRAG_KEY_FILE"), *at = o->source;
	struct jobfile job;
	struct host_port peer;

	*key = (struct source_key){ .is_there = false };
	if (o->plain)
		return 0;
	if (o->key_file)
		return load(o->key_file, o->writable, key, why, whysize);
	if (environment && *environment)
		return load(environment, o->writable, key, why, whysize);
	while (next_peer(&at, &peer, o->source, why, whysize) > 0) {
		if (jobfile_find_port((uint16_t)atoi(peer.port), &job))
			continue;
		return job.key_file[0] ? load(job.key_file, o->writable, key, why, whysize) : 0;
	}
	snprintf(why, whysize,
		 "%s: no job of yours on this host has that port, so its key must be given: "
		 "FRAG_KEY_FILE, or -o key=FILE of a mount (for a job without: -o plain; "
		 "fragctl: FRAG_PLAIN=1)",
		 o->source);
	return -ENOKEY;
}

static int try_connect(const struct sockaddr_in *address)
{
	CLEANUP(close) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t size = sizeof(int);
	int error = 0;

	if (fd < 0)
		return -errno;
	if (!connect(fd, (const struct sockaddr *)address, sizeof(*address)))
		return 0;
	if (errno != EINPROGRESS)
		return -errno;
	if (poll(&p, 1, PROBE_MS) <= 0)
		return -ETIMEDOUT;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
	return -error;
}

int source_probe(const char *source, char *why, size_t whysize)
{
	const char *at = source;
	struct host_port peer;
	struct sockaddr_in address;
	int rc, result = -EINVAL;

	while ((rc = next_peer(&at, &peer, source, why, whysize)) > 0) {
		rc = resolve(&peer, &address, why, whysize);
		result = rc ? rc : try_connect(&address);
		if (!result)
			return 0;
		if (!rc)
			snprintf(why, whysize, "no job listens at %s:%s: %s", peer.host,
				 peer.port, strerror(-result));
	}
	return result;
}
