/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/checkpoint.h"
#include "engine/launch/jobfile.h"
#include "engine/launch/source.h"
#include "engine/live/live.h"

#include <errno.h>
#include <stdio.h>

/* The functions of engine.h: each calls the operation of the job or the checkpoint behind an
 * engine.
 */

static const struct engine_ops *ops(const struct engine *e)
{
	return ((const struct engine_base *)e)->ops;
}

static const struct engine_ops *file_ops(const struct engine_file *file)
{
	return ops(((const struct engine_member *)file)->engine);
}

static const struct engine_ops *events_ops(const struct engine_events *events)
{
	return ops(((const struct engine_member *)events)->engine);
}

bool engine_is_checkpoint(const struct engine_options *options)
{
	return options->format || source_is_path(options->source);
}

int engine_open(struct engine **e, const struct engine_options *options, char *why,
		size_t whysize)
{
	bool is_checkpoint = engine_is_checkpoint(options);

	if (options->format && source_is_address(options->source) &&
	    access(options->source, F_OK)) {
		snprintf(why, whysize,
			 "%s is a job's address, and source=%s is for a checkpoint",
			 options->source, options->format);
		return -EINVAL;
	}
	if (!is_checkpoint && options->overlay) {
		snprintf(why, whysize, "%s: only a checkpoint has an overlay", options->source);
		return -EINVAL;
	}
	if (!is_checkpoint)
		return live_open(e, options, why, whysize);
	return checkpoint_open(e, options, why, whysize);
}

void engine_hidden_job(const struct engine_options *options, char *address, size_t size)
{
	struct jobfile job;

	*address = '\0';
	if (!options->format && engine_is_checkpoint(options) &&
	    !jobfile_find(options->source, &job))
		snprintf(address, size, "%s", job.address);
}

bool engine_is_unfinished(const struct engine_options *options)
{
	return engine_is_checkpoint(options) &&
	       checkpoint_is_unfinished(options->source, options->format);
}

void engine_close(struct engine *e)
{
	if (e)
		ops(e)->close(e);
}

bool engine_is_live(struct engine *e)
{
	return ops(e)->live;
}

/* ---- what there is ---- */

uint32_t engine_nparams(struct engine *e)
{
	return ops(e)->nparams(e);
}

uint32_t engine_nbuffers(struct engine *e)
{
	return ops(e)->nbuffers(e);
}

uint32_t engine_nparts(struct engine *e)
{
	return ops(e)->nparts(e);
}

bool engine_part(struct engine *e, uint32_t part, struct engine_part *out)
{
	return ops(e)->part(e, part, out);
}

uint32_t engine_ngroups(struct engine *e)
{
	return ops(e)->ngroups(e);
}

uint32_t engine_nranks(struct engine *e)
{
	return ops(e)->nranks(e);
}

bool engine_param(struct engine *e, uint32_t param, struct engine_param *out)
{
	return ops(e)->param(e, param, out);
}

bool engine_group(struct engine *e, uint32_t group, struct engine_group *out)
{
	return ops(e)->group(e, group, out);
}

uint64_t engine_epoch(struct engine *e)
{
	return ops(e)->epoch(e);
}

int engine_states(struct engine *e, uint32_t param, struct engine_state *out, int max)
{
	return ops(e)->states(e, param, out, max);
}

int engine_rank_states(struct engine *e, uint32_t rank, uint32_t param,
		       struct engine_state *out, int max)
{
	return ops(e)->rank_states(e, rank, param, out, max);
}

int engine_partition_states(struct engine *e, uint32_t rank, uint32_t group, uint32_t sub,
			    struct engine_state *out, int max)
{
	return ops(e)->partition_states(e, rank, group, sub, out, max);
}

int engine_hypers(struct engine *e, uint32_t group, struct engine_state *out, int max)
{
	return ops(e)->hypers(e, group, out, max);
}

bool engine_rank(struct engine *e, uint32_t rank, struct engine_rank *out)
{
	return ops(e)->rank(e, rank, out);
}

void engine_job(struct engine *e, struct engine_job *out)
{
	ops(e)->job(e, out);
}

uint64_t engine_changed_ns(struct engine *e, const struct engine_address *address)
{
	return ops(e)->changed_ns(e, address);
}

char *engine_text(struct engine *e, const char *what)
{
	return ops(e)->text(e, what);
}

void engine_fragments(struct engine *e, uint32_t param, const char *key,
		      void (*see)(void *arg, const struct engine_fragment *f), void *arg)
{
	ops(e)->fragments(e, param, key, see, arg);
}

char *engine_rank_text(struct engine *e, uint32_t rank, const char *what)
{
	return ops(e)->rank_text(e, rank, what);
}

int engine_place(struct engine *e, const char *states, const char *tier)
{
	return ops(e)->place ? ops(e)->place(e, states, tier, false) : -EOPNOTSUPP;
}

int engine_place_check(struct engine *e, const char *states, const char *tier)
{
	return ops(e)->place ? ops(e)->place(e, states, tier, true) : -EOPNOTSUPP;
}

int engine_rank_arena(struct engine *e, uint32_t rank)
{
	return ops(e)->rank_arena(e, rank);
}

/* ---- waiting ---- */

uint64_t engine_changes(struct engine *e)
{
	return ops(e)->changes(e);
}

void engine_wait(struct engine *e, struct engine_wait *wait)
{
	ops(e)->wait(e, wait);
}

void engine_wait_epoch(struct engine *e, struct engine_wait *wait)
{
	ops(e)->wait_epoch(e, wait);
}

void engine_wait_cancel(struct engine *e, struct engine_wait *wait)
{
	ops(e)->wait_cancel(e, wait);
}

int engine_events_open(struct engine *e, struct engine_events **events)
{
	return ops(e)->events_open(e, events);
}

void engine_events_close(struct engine_events *events)
{
	if (events)
		events_ops(events)->events_close(events);
}

size_t engine_events_read(struct engine_events *events, char *out, size_t size)
{
	return events_ops(events)->events_read(events, out, size);
}

bool engine_events_ready(struct engine_events *events)
{
	return events_ops(events)->events_ready(events);
}

/* ---- reading and writing ---- */

int engine_file_open(struct engine *e, const struct engine_address *address,
		     struct engine_file **file, uint64_t *bytes)
{
	return ops(e)->file_open(e, address, 1, file, bytes);
}

int engine_file_open_many(struct engine *e, const struct engine_address *addresses, uint32_t n,
			  struct engine_file **file, uint64_t *bytes)
{
	return ops(e)->file_open(e, addresses, n, file, bytes);
}

void engine_file_close(struct engine_file *file)
{
	if (file)
		file_ops(file)->file_close(file);
}

void engine_read_from(const char *caller, struct engine *e, struct engine_read *read)
{
	read->caller = caller;
	ops(e)->read(e, read);
}

void engine_read_cancel(struct engine *e, struct engine_read *read)
{
	ops(e)->read_cancel(e, read);
}

int engine_sums(struct engine *e, struct engine_sums *sums)
{
	return ops(e)->sums ? ops(e)->sums(e, sums) : -EOPNOTSUPP;
}

void engine_sums_cancel(struct engine *e, struct engine_sums *sums)
{
	ops(e)->sums_cancel(e, sums);
}

void engine_write_from(const char *caller, struct engine *e, struct engine_write *write)
{
	write->caller = caller;
	ops(e)->write(e, write);
}

void engine_write_cancel(struct engine *e, struct engine_write *write)
{
	ops(e)->write_cancel(e, write);
}

void engine_freeze(struct engine *e, struct engine_freeze *freeze)
{
	ops(e)->freeze(e, freeze);
}

void engine_freeze_cancel(struct engine *e, struct engine_freeze *freeze)
{
	ops(e)->freeze_cancel(e, freeze);
}
