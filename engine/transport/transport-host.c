/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/fork.h"
#include "engine/base/queue.h"
#include "engine/base/slot-map.h"
#include "engine/transport/transport.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Memory of processes of this machine.  Any thread. */

struct transport {
	const struct transport_ops *ops;
	pthread_mutex_t lock;
	struct slot_map processes; /* under lock */
};

struct share {
	LIST_ENTRY(share) next;
	uint64_t start, end; /* addresses of the target */
	const uint8_t *map;  /* of [start, end) */
	size_t mapped;       /* bytes, whole pages of the file */
};

struct process {
	struct transport_target target;
	int pidfd; /* -1: the kernel has none */
	_Atomic unsigned refs;
	pthread_rwlock_t lock;     /* held for reading while bytes are copied */
	LIST_HEAD(, share) shares; /* under lock, the newest first */
};

/* ---- one system call's worth of ranges ---- */

struct copy_batch {
	pid_t pid;
	unsigned nlocal, nremote;
	size_t bytes; /* on both sides */
	struct iovec local[IOV_MAX];
	struct iovec remote[IOV_MAX];
};

static void append(struct iovec *v, unsigned *n, void *base, size_t size)
{
	struct iovec *last = *n ? &v[*n - 1] : NULL;

	if (last && (char *)last->iov_base + last->iov_len == (char *)base)
		last->iov_len += size;
	else
		v[(*n)++] = (struct iovec){ base, size };
}

static struct iovec *skip(struct iovec *v, unsigned *n, size_t bytes)
{
	while (*n && bytes >= v->iov_len) {
		bytes -= v->iov_len;
		v++;
		(*n)--;
	}
	if (*n) {
		v->iov_base = (char *)v->iov_base + bytes;
		v->iov_len -= bytes;
	}
	return v;
}

static int copy_error(int error)
{
	switch (error) {
	case EPERM:
	case ENOSYS: /* seccomp filters say it for EPERM */
	case EACCES:
		return -EPERM;
	case ESRCH:
	case ENOMEM:
		return -error;
	default:
		return -EFAULT;
	}
}

static int flush(struct copy_batch *b)
{
	struct iovec *local = b->local, *remote = b->remote;

	while (b->bytes) {
		ssize_t n = process_vm_readv(b->pid, local, b->nlocal, remote, b->nremote, 0);

		if (n <= 0)
			return copy_error(n ? errno : EFAULT);
		b->bytes -= (size_t)n;
		local = skip(local, &b->nlocal, (size_t)n);
		remote = skip(remote, &b->nremote, (size_t)n);
	}
	b->nlocal = b->nremote = 0;
	return 0;
}

static int batch_add(struct copy_batch *b, void *local, void *remote, size_t size)
{
	int rc = 0;

	if (b->nlocal == IOV_MAX || b->nremote == IOV_MAX)
		rc = flush(b);
	if (rc)
		return rc;
	append(b->local, &b->nlocal, local, size);
	append(b->remote, &b->nremote, remote, size);
	b->bytes += size;
	return 0;
}

/* ---- is it still the same process ---- */

static bool is_dead(const struct process *p)
{
	struct pollfd poller = { .fd = p->pidfd, .events = POLLIN };

	return p->pidfd >= 0 && poll(&poller, 1, 0) == 1;
}

static int check_cookie(const struct process *p, const void *control)
{
	if (!memcmp(control, p->target.cookie, sizeof(p->target.cookie)))
		return 0;
	return is_dead(p) ? -ESRCH : -ESTALE;
}

static int look_at_cookie(const struct process *p)
{
	uint64_t cookie[2];
	struct iovec local = { cookie, sizeof(cookie) };
	struct iovec remote = { (void *)(uintptr_t)p->target.control, sizeof(cookie) };
	ssize_t n = process_vm_readv(p->target.pid, &local, 1, &remote, 1, 0);
	int rc = n == (ssize_t)sizeof(cookie) ? 0 : copy_error(n < 0 ? errno : EFAULT);

	if (rc == -EFAULT) /* no control page is there: the process is another program */
		return is_dead(p) ? -ESRCH : -ESTALE;
	return rc ? rc : check_cookie(p, cookie);
}

/* Tells a range that is not there from another process that has the pid now. */
static int diagnose(const struct process *p, int rc)
{
	int other = 0;

	if (is_dead(p))
		return -ESRCH;
	if (rc == -EFAULT)
		other = look_at_cookie(p);
	return other ? other : rc;
}

/* ---- shared mappings ---- */

static const struct share *find_share(const struct process *p, uint64_t address)
{
	const struct share *s;

	LIST_FOREACH (s, &p->shares, next)
		if (address >= s->start && address < s->end)
			break;
	return s;
}

/* Returns how many of the size bytes at address are copied in one way: from *share, or, where
 * that is NULL, by process_vm_readv.
 */
static size_t same_way(const struct process *p, uint64_t address, size_t size,
		       const struct share **share)
{
	const struct share *s;
	uint64_t end;

	*share = find_share(p, address);
	end = *share ? (*share)->end : UINT64_MAX;
	LIST_FOREACH (s, &p->shares, next)
		if (s->start > address)
			end = u64_min(end, s->start);
	return (size_t)u64_min(size, end - address);
}

static void drop_shares(struct process *p, uint64_t start, uint64_t end)
{
	struct share *s, *next;

	LIST_FOREACH_SAFE (s, &p->shares, next, next)
		if (s->start < end && start < s->end) {
			LIST_REMOVE(s, next);
			munmap((void *)(uintptr_t)s->map, s->mapped);
			free(s);
		}
}

static int check_sealed(int fd, uint64_t size, size_t *mapped)
{
	int seals = fcntl(fd, F_GET_SEALS), sized = F_SEAL_SHRINK | F_SEAL_GROW;
	struct stat st;
	uint64_t page;

	if (seals < 0)
		return -EINVAL;
	if ((seals & sized) != sized || !(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		return -EPERM;
	if (fstat(fd, &st))
		return -errno;
	if ((uint64_t)st.st_size < size)
		return -EINVAL;
	page = u64_max((uint64_t)st.st_blksize, 4096); /* munmap wants whole huge pages */
	*mapped = (size_t)(u64_div_ceil(size, page) * page);
	return 0;
}

static int map_sealed(const struct process *p, int fd, struct share *s)
{
	char path[64];
	CLEANUP(close) int own = -1;
	void *memory;
	int rc;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)p->target.pid, fd);
	own = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (own < 0)
		return -errno;
	rc = check_sealed(own, s->end - s->start, &s->mapped);
	if (!rc)
		/* the path led to this process, not to a later one with its pid */
		rc = look_at_cookie(p);
	if (rc)
		return rc;
	memory = mmap(NULL, s->mapped, PROT_READ, MAP_SHARED, own, 0);
	if (memory == MAP_FAILED)
		return -errno;
	madvise(memory, s->mapped, MADV_DONTFORK);
	s->map = memory;
	return 0;
}

/* ---- the table ---- */

static void process_free(struct process *p)
{
	drop_shares(p, 0, UINT64_MAX);
	pthread_rwlock_destroy(&p->lock);
	if (p->pidfd >= 0) {
		fork_forget(p->pidfd);
		close(p->pidfd);
	}
	free(p);
}

static void process_put(struct process *p)
{
	if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1)
		process_free(p);
}

static struct process *process_get(struct transport *t, uint32_t peer)
{
	struct process *p;

	pthread_mutex_lock(&t->lock);
	p = slot_map_get(&t->processes, peer);
	if (p)
		atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
	pthread_mutex_unlock(&t->lock);
	return p;
}

static void init_lock(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	/* glibc prefers readers, and overlapping gets would keep share waiting for ever */
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(lock, &attr);
	pthread_rwlockattr_destroy(&attr);
}

static int process_open(const struct transport_target *target, struct process **out)
{
	struct process *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return -ENOMEM;
	p->target = *target;
	p->refs = 1;
	init_lock(&p->lock);
	p->pidfd = (int)syscall(SYS_pidfd_open, target->pid, 0);
	rc = p->pidfd >= 0 || errno == ENOSYS || errno == EPERM ? 0 : -errno;
	if (p->pidfd >= 0)
		fork_close(p->pidfd);
	if (!rc)
		rc = look_at_cookie(p);
	if (rc)
		process_free(p);
	else
		*out = p;
	return rc;
}

static int host_open(struct transport **out, const struct transport_config *config)
{
	struct transport *t = malloc(sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->ops = &transport_host;
	pthread_mutex_init(&t->lock, NULL);
	slot_map_init(&t->processes, TRANSPORT_PEERS_MAX);
	*out = t;
	return 0;
}

/* No get may be under way. */
static void host_close(struct transport *t)
{
	struct process *p;
	uint32_t slot = 0;

	if (!t)
		return;
	while ((p = slot_map_next(&t->processes, &slot)))
		process_put(p);
	slot_map_fini(&t->processes);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static int host_attach(struct transport *t, const struct transport_target *target,
		       uint32_t *peer)
{
	struct process *p;
	int rc;

	if (target->pid <= 0)
		return -EINVAL;
	rc = process_open(target, &p);
	if (rc)
		return rc;
	pthread_mutex_lock(&t->lock);
	rc = slot_map_add(&t->processes, p, peer);
	pthread_mutex_unlock(&t->lock);
	if (rc)
		process_put(p);
	return rc;
}

static void host_detach(struct transport *t, uint32_t peer)
{
	struct process *p;

	pthread_mutex_lock(&t->lock);
	p = slot_map_get(&t->processes, peer);
	slot_map_remove(&t->processes, peer);
	pthread_mutex_unlock(&t->lock);
	if (p)
		process_put(p);
}

/* ---- get ---- */

static bool total(const struct iovec *v, unsigned n, uint64_t *bytes)
{
	uint64_t end;

	*bytes = 0;
	for (unsigned i = 0; i < n; i++)
		if (!u64_add(*bytes, v[i].iov_len, bytes) ||
		    !u64_add((uintptr_t)v[i].iov_base, v[i].iov_len, &end))
			return false;
	return true;
}

/* Copies one remote range to local, from *offset of its first element on. */
static int copy_range(const struct process *p, struct copy_batch *b, struct iovec range,
		      const struct iovec **local, size_t *offset)
{
	while (range.iov_len) {
		const struct share *share;
		uint64_t address = (uintptr_t)range.iov_base;
		size_t size = same_way(p, address, range.iov_len, &share);
		char *to;
		int rc = 0;

		while (*offset == (*local)->iov_len) {
			(*local)++;
			*offset = 0;
		}
		size = (size_t)u64_min(size, (*local)->iov_len - *offset);
		to = (char *)(*local)->iov_base + *offset;
		/* the owner may be writing: the control page says whether these bytes count */
		if (share)
			memcpy(to, share->map + (address - share->start), size);
		else
			rc = batch_add(b, to, range.iov_base, size);
		if (rc)
			return rc;
		*offset += size;
		range.iov_base = (char *)range.iov_base + size;
		range.iov_len -= size;
	}
	return 0;
}

/* The control page goes last, in the same call where it fits: the kernel copies in order. */
static int copy_all(const struct process *p, const struct iovec *local,
		    const struct iovec *remote, unsigned nremote, void *control,
		    size_t control_size)
{
	struct copy_batch b;
	size_t offset = 0;
	int rc = 0;

	b.pid = p->target.pid;
	b.nlocal = b.nremote = 0;
	b.bytes = 0;
	for (unsigned i = 0; i < nremote && !rc; i++)
		rc = copy_range(p, &b, remote[i], &local, &offset);
	/* the bytes of mappings are read before the control page */
	atomic_thread_fence(memory_order_acquire);
	if (!rc)
		rc = batch_add(&b, control, (void *)(uintptr_t)p->target.control, control_size);
	if (!rc)
		rc = flush(&b);
	return rc;
}

static int host_get(struct transport *t, uint32_t peer, const struct iovec *local,
		    unsigned nlocal, const struct iovec *remote, unsigned nremote,
		    void *control, size_t control_size)
{
	struct process *p;
	uint64_t here, there;
	int rc;

	if (!total(local, nlocal, &here) || !total(remote, nremote, &there) || here != there ||
	    control_size < sizeof(p->target.cookie))
		return -EINVAL;
	p = process_get(t, peer);
	if (!p)
		return -ENOTCONN;
	pthread_rwlock_rdlock(&p->lock);
	rc = copy_all(p, local, remote, nremote, control, control_size);
	pthread_rwlock_unlock(&p->lock);
	rc = rc ? diagnose(p, rc) : check_cookie(p, control);
	process_put(p);
	return rc;
}

static int share_add(struct process *p, int fd, uint64_t start, uint64_t end)
{
	struct share *s = malloc(sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	*s = (struct share){ .start = start, .end = end };
	rc = map_sealed(p, fd, s);
	if (rc) {
		free(s);
		return rc;
	}
	pthread_rwlock_wrlock(&p->lock);
	drop_shares(p, start, end);
	LIST_INSERT_HEAD(&p->shares, s, next);
	pthread_rwlock_unlock(&p->lock);
	return 0;
}

static int share_drop(struct process *p, uint64_t start, uint64_t end)
{
	pthread_rwlock_wrlock(&p->lock);
	drop_shares(p, start, end);
	pthread_rwlock_unlock(&p->lock);
	return 0;
}

static int host_share(struct transport *t, uint32_t peer, int fd, uint64_t address,
		      uint64_t size)
{
	struct process *p;
	uint64_t end;
	int rc;

	if (!size || !u64_add(address, size, &end))
		return -EINVAL;
	p = process_get(t, peer);
	if (!p)
		return -ENOTCONN;
	rc = fd < 0 ? share_drop(p, address, end) : share_add(p, fd, address, end);
	process_put(p);
	return rc;
}

const struct transport_ops transport_host = {
	.name = "host",
	.open = host_open,
	.close = host_close,
	.attach = host_attach,
	.detach = host_detach,
	.get = host_get,
	.share = host_share,
};
