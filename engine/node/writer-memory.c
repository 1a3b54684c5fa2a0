/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/key.h"
#include "engine/base/log.h"
#include "engine/node/writer-memory.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

void writer_memory_init(struct engine *e)
{
	const char *readers = env_text("FRAG_PTRACER");
	uint64_t *word = e->write.word;

	e->write.by_memory = e->job.key.is_there && !e->job.key.reads_only &&
			     e->memory.transport &&
			     !key_for_writers_memory(e->job.key.bytes, word);
	if (!e->write.by_memory)
		word[0] = word[1] = 0;
	else if (e->is_rank) /* keeps the complement, so that a rank's memory lacks the word */
		word[0] = ~word[0], word[1] = ~word[1];
	else if (readers && !strcmp(readers, "any")) /* as frag_open does in ranks */
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
}

bool writer_memory_is_copied(const struct engine *e, uint32_t rank)
{
	const struct peer *p = &e->peers[rank];

	return e->write.by_memory && !e->is_rank && p->way == PEER_WAY_MEMORY &&
	       !p->wants_staged;
}

bool writer_memory_name(const struct engine *e, uint32_t rank, const void *bytes,
			struct wire_memory *from)
{
	if (!writer_memory_is_copied(e, rank))
		return false;
	*from = (struct wire_memory){ .pid = (uint64_t)getpid(),
				      .word = (uintptr_t)e->write.word,
				      .address = (uintptr_t)bytes };
	return true;
}

void writer_memory_refused(struct engine *e, uint32_t rank)
{
	if (!e->peers[rank].wants_staged)
		log_info("rank %u cannot copy edits out of this mount's memory: they are sent "
			 "(its log says why at FRAG_LOG=debug)",
			 rank);
	e->peers[rank].wants_staged = true;
}

/* Returns true if pid is a rank's: whoever has the key can write the word into a rank's state.
 */
static bool is_a_rank(const struct engine *e, uint64_t pid)
{
	bool is = pid == (uint64_t)getpid();

	for (uint32_t rank = 0; rank < e->world && !is; rank++)
		is = e->peers[rank].entry.present && (uint64_t)e->peers[rank].entry.pid == pid;
	return is;
}

static int copy(const struct engine *e, const struct wire_memory *from, const struct iovec *to,
		unsigned n)
{
	const struct transport_ops *ops = e->memory.ops;
	/* the word stands for the cookie of a control page: attach and get look at it */
	struct transport_target writer = { .pid = (pid_t)from->pid,
					   .control = from->word,
					   .cookie = { ~e->write.word[0], ~e->write.word[1] } };
	struct iovec remote = { (void *)(uintptr_t)from->address, 0 };
	uint64_t word[2];
	uint32_t attached;
	int rc = ops->attach(e->memory.transport, &writer, &attached);

	if (rc)
		return rc;
	for (unsigned i = 0; i < n; i++)
		remote.iov_len += to[i].iov_len;
	rc = ops->get(e->memory.transport, attached, to, n, &remote, 1, word, sizeof(word));
	ops->detach(e->memory.transport, attached);
	return rc;
}

int writer_memory_copy(const struct engine *e, const struct wire_memory *from,
		       const struct iovec *to, unsigned n)
{
	int rc = -EPERM;

	assert(node_is_engine_thread(e));
	if (e->write.by_memory && e->is_rank && from->pid <= INT_MAX &&
	    !is_a_rank(e, from->pid))
		rc = copy(e, from, to, n);
	if (rc)
		log_debug("the memory of process %llu, of an edit, is not copied: %s",
			  (unsigned long long)from->pid, strerror(-rc));
	return rc ? -ENOLINK : 0;
}
