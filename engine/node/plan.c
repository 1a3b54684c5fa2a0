/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/node/peers.h"
#include "engine/node/plan.h"

#include <errno.h>
#include <string.h>

/* From names to rows: which ranks hold which bytes.  The layouts are arithmetic
 * (engine/catalog/layout.h); the ranks' tables of states say where each partition lies.
 */

/* The rows that can have the bytes of one address: found once, then walked. */
struct location {
	enum { IN_PARTITIONS, IN_WHOLE, IN_LP_SHARDS, IN_LP, IN_ROW } kind;
	const struct catalog_param *param;
	const struct catalog_group *group; /* NULL: the parameter is in none */
	uint32_t group_number, param_number;
	const char *key;
	enum frag_dtype dtype;
	uint64_t bytes;
	uint32_t rank; /* IN_ROW */
	uint32_t row;
	uint64_t since_ns;
	bool as_it_stands; /* no generation is wanted: the memory of a silent rank will do */
	const struct peer **table_of; /* set to the rank whose table is missing; or NULL */
};

/* Returns true if status is that of a lost rank.
 * -EIO: its process is gone.
 * -ETIMEDOUT: it is silent.
 */
static bool is_lost(int status)
{
	return status == -EIO || status == -ETIMEDOUT;
}

/* Returns the number of the row in the rank's table of states.
 * -ENOENT: the table has no such row.
 * -EAGAIN: the table is not here yet, or too old to say -ENOENT.
 * is_lost: the rank is lost.
 */
static int row_on(struct engine *e, const struct location *p, uint32_t rank,
		  enum state_kind kind, uint32_t index, uint32_t sub, const char *key)
{
	bool last_table = p->as_it_stands && rank < e->world && peers_is_readable(e, rank);
	int rc = -EIO;

	if (last_table) /* a silent rank sends no newer one */
		return states_find(e->peers[rank].states, kind, index, sub, key);
	if (rank < e->world)
		rc = peers_want_states(e, rank);
	if (!rc)
		rc = states_find(e->peers[rank].states, kind, index, sub, key);
	if (rc == -ENOENT && e->peers[rank].states_ns < p->since_ns) {
		peers_doubt_states(e, rank);
		rc = -EAGAIN;
	}
	if (rc == -EAGAIN && p->table_of)
		*p->table_of = &e->peers[rank];
	return rc;
}

static const struct state_row *row_of(const struct engine *e, uint32_t rank, uint32_t row)
{
	return &e->peers[rank].states->rows[row];
}

static uint32_t members(const struct location *p)
{
	return p->group ? p->group->nranks : 1;
}

static uint32_t member(const struct location *p, uint32_t i)
{
	return p->group ? p->group->ranks[i] : p->param->owner;
}

/* Merges what one member's table says, rc, into *all.  Returns true if the next member is to be
 * asked, because this one is lost, or has been silent for so long that the log has told of it.
 */
static bool passes_over(const struct engine *e, uint32_t rank, int rc, int *all)
{
	bool over = is_lost(rc) || (rc == -EAGAIN && e->peers[rank].silence_told);

	if (!over || *all == -EIO || rc == -EAGAIN)
		*all = rc;
	return over;
}

/* Finds out if a live member has the row.  All members register states alike: the first table
 * that is here will do.
 * 0: its dtype is in *p.
 * -ENOENT: none has it.
 * -EAGAIN: a table is on its way.
 * is_lost: no member lives.
 */
static int some_member_has(struct engine *e, struct location *p, enum state_kind kind,
			   uint32_t index, uint32_t sub)
{
	int rc = -EIO;

	for (uint32_t i = 0; i < members(p); i++) {
		uint32_t rank = member(p, i);
		int row = row_on(e, p, rank, kind, index, sub, p->key);

		if (passes_over(e, rank, row, &rc))
			continue;
		if (row >= 0)
			p->dtype = row_of(e, rank, (uint32_t)row)->dtype;
		return row >= 0 ? 0 : row;
	}
	return rc;
}

static int locate_state(struct engine *e, struct location *p)
{
	uint32_t sub;
	int rc;

	if (!p->group || p->param->flags & FRAG_FROZEN)
		return -ENOENT;
	sub = layout_sub(&p->group->layout, p->param->position);
	p->kind = IN_PARTITIONS;
	rc = some_member_has(e, p, STATE_PARTITION, p->group_number, sub);
	if (rc != -ENOENT)
		return rc;
	p->kind = IN_WHOLE;
	return some_member_has(e, p, STATE_WHOLE, p->group_number, 0);
}

/* Looks for the parameter's fp32 master.
 * 0: the parameter has none.
 * -ENOENT: it has one.
 * Other errors of some_member_has.
 */
static int lacks_master(struct engine *e, const struct location *p)
{
	struct location master = *p;
	int rc;

	master.key = "fp32";
	rc = locate_state(e, &master);
	return rc == -ENOENT ? 0 : rc ? rc : -ENOENT;
}

static int locate_lp(struct engine *e, struct location *p)
{
	int rc = -ENOENT;

	p->key = "";
	if (p->group && catalog_lp_is_sharded(p->group)) {
		p->kind = IN_LP_SHARDS;
		rc = some_member_has(e, p, STATE_LP_SHARD, p->param_number, 0);
	}
	if (rc == -ENOENT) {
		p->kind = IN_LP;
		rc = some_member_has(e, p, STATE_LP, p->param_number, 0);
	}
	if (rc == -ENOENT && !p->param->numel) /* no values need no memory */
		rc = lacks_master(e, p);
	p->dtype = p->param->dtype;
	return rc;
}

static int locate_param(struct engine *e, const struct engine_address *a, struct location *p)
{
	int rc;

	if (a->param >= e->catalog->nparams)
		return -ENOENT;
	p->param = &e->catalog->params[a->param];
	p->param_number = a->param;
	p->key = a->key;
	if (p->param->group != CATALOG_NONE) {
		p->group_number = p->param->group;
		p->group = &e->catalog->groups[p->group_number];
	}
	rc = dtype_is_lp_key(p->param->dtype, a->key) ? locate_lp(e, p) : locate_state(e, p);
	if (!rc)
		p->bytes = p->param->numel * frag_dtype_size(p->dtype);
	return rc;
}

static int locate_row(struct engine *e, struct location *p, uint32_t rank, enum state_kind kind,
		      uint32_t index, uint32_t sub, const char *key)
{
	int row = row_on(e, p, rank, kind, index, sub, key);

	if (row < 0)
		return row;
	p->kind = IN_ROW;
	p->key = key;
	p->rank = rank;
	p->row = (uint32_t)row;
	p->dtype = row_of(e, rank, (uint32_t)row)->dtype;
	p->bytes = row_of(e, rank, (uint32_t)row)->numel * frag_dtype_size(p->dtype);
	return 0;
}

static int locate_hyper(struct engine *e, const struct engine_address *a, struct location *p)
{
	const struct catalog_group *g;
	int rc = -EIO;

	if (a->group >= e->catalog->ngroups)
		return -ENOENT;
	g = &e->catalog->groups[a->group];
	for (uint32_t i = 0; i < g->nranks; i++)
		if (!passes_over(
			    e, g->ranks[i],
			    locate_row(e, p, g->ranks[i], STATE_HYPER, a->group, 0, a->key),
			    &rc))
			break;
	p->group = g;
	p->group_number = a->group;
	return rc;
}

static int locate_any(struct engine *e, const struct engine_address *a, struct location *p)
{
	switch (a->kind) {
	case ENGINE_PARAM:
	case ENGINE_RANK_PARAM:
		return locate_param(e, a, p);
	case ENGINE_RANK_PARTITION:
		return locate_row(e, p, a->rank, STATE_PARTITION, a->group, a->sub, a->key);
	case ENGINE_RANK_PUBLISHED:
		return locate_row(e, p, a->rank, STATE_PUBLISHED, 0, 0, a->key);
	case ENGINE_HYPER:
		return locate_hyper(e, a, p);
	case ENGINE_MODEL_STATES:
		break;
	}
	return -ENOENT;
}

static int locate(struct engine *e, const struct engine_address *a, uint64_t since_ns,
		  const struct peer **table_of, struct location *p)
{
	int rc;

	*p = (struct location){ .as_it_stands = a->now || a->kind != ENGINE_PARAM,
				.table_of = table_of };
	rc = locate_any(e, a, p);
	p->since_ns = since_ns;
	/* A state is looked for in several ways.  Tables of any age may say in which it is
	 * there, only young ones that it is there in none.
	 */
	return rc == -ENOENT && since_ns ? locate_any(e, a, p) : rc;
}

/* ---- one run of elements, on every replica that has it ---- */

struct replicas_run {
	enum state_kind kind;
	uint32_t index, sub;
	const char *key;
	uint64_t row_offset; /* elements */
	uint64_t numel;
	uint32_t first, stride, count; /* which members hold it: first, first + stride ... */
};

static bool partition_run(const struct location *p, uint64_t at, struct replicas_run *run)
{
	const struct layout *layout = &p->group->layout;
	struct layout_fragment f;

	if (!layout_find(layout, p->param->position, at, &f))
		return false;
	*run = (struct replicas_run){
		STATE_PARTITION, p->group_number,    f.sub,
		p->key,          f.partition_offset, f.numel,
		f.shard,         layout->shards,     p->group->nranks / layout->shards
	};
	return true;
}

static bool whole_run(const struct location *p, uint64_t at, struct replicas_run *run)
{
	const struct layout *layout = &p->group->layout;

	*run = (struct replicas_run){ STATE_WHOLE,
				      p->group_number,
				      0,
				      p->key,
				      layout->offset[p->param->position] + at,
				      p->param->numel - at,
				      0,
				      1,
				      p->group->nranks };
	return true;
}

static bool lp_shard_run(const struct engine *e, const struct location *p, uint64_t at,
			 struct replicas_run *run)
{
	uint64_t piece = catalog_lp_piece(e->catalog, p->param_number), shard;
	uint32_t shards = catalog_shards(p->group);
	struct cuts_box box;

	if (p->param->cuts) {
		if (at >= p->param->numel)
			return false;
		cuts_find(p->param->cuts, at, &box);
		*run = (struct replicas_run){ STATE_LP_SHARD,
					      p->param_number,
					      0,
					      "",
					      at - box.start,
					      box.start + box.numel - at,
					      box.shard,
					      shards,
					      p->group->nranks / shards };
		return true;
	}
	if (!piece || (shard = at / piece) >= shards)
		return false;
	*run = (struct replicas_run){ STATE_LP_SHARD,
				      p->param_number,
				      0,
				      "",
				      at - shard * piece,
				      u64_min(piece * (shard + 1), p->param->numel) - at,
				      (uint32_t)shard,
				      shards,
				      p->group->nranks / shards };
	return true;
}

static bool lp_run(const struct location *p, uint64_t at, struct replicas_run *run)
{
	*run = (struct replicas_run){ STATE_LP,  p->param_number,      0, "",
				      at,        p->param->numel - at, 0, 1,
				      members(p) };
	return true;
}

static bool run_at(const struct engine *e, const struct location *p, uint64_t at,
		   struct replicas_run *run)
{
	switch (p->kind) {
	case IN_PARTITIONS:
		return partition_run(p, at, run);
	case IN_WHOLE:
		return whole_run(p, at, run);
	case IN_LP_SHARDS:
		return lp_shard_run(e, p, at, run);
	case IN_LP:
		return lp_run(p, at, run);
	case IN_ROW:
		break;
	}
	return false;
}

/* How good a rank is to read from, the best last. */
enum holder_class {
	HOLDER_GONE,       /* lost; perhaps its memory can be read */
	HOLDER_SILENT,     /* its table of states is not here, and it does not answer */
	HOLDER_LIVE,       /* its table is not here */
	HOLDER_KNOWN,      /* its table is here */
	HOLDER_NEAR,       /* on this host, its table is not here */
	HOLDER_NEAR_KNOWN, /* on this host, its table is here */
	HOLDERS,
};

static enum holder_class how_good(const struct engine *e, uint32_t rank)
{
	const struct peer *p = &e->peers[rank];
	bool known = p->states && p->fetch == PEER_FETCH_NONE, near;

	if (!peer_is_live(p))
		return HOLDER_GONE;
	near = peers_same_host(e, rank);
	if (known)
		return near ? HOLDER_NEAR_KNOWN : HOLDER_KNOWN;
	if (p->silence_told)
		return HOLDER_SILENT;
	return near ? HOLDER_NEAR : HOLDER_LIVE;
}

/* Chooses the holder to read a run from.  Returns its row, and sets *rank to it, or to one of
 * the holders if all are lost.  A table that is missing is asked of one rank, not of all that
 * have a copy.  Errors of row_on.
 */
static int choose_holder(struct engine *e, const struct location *p,
			 const struct replicas_run *run, uint32_t *rank)
{
	int best = -EIO;

	for (int good = HOLDERS - 1; good >= HOLDER_GONE; good--) {
		for (uint32_t i = 0; i < run->count; i++) {
			uint32_t candidate = member(p, run->first + i * run->stride);
			int row;

			if ((int)how_good(e, candidate) != good)
				continue;
			row = row_on(e, p, candidate, run->kind, run->index, run->sub,
				     run->key);
			if (row >= 0) {
				*rank = candidate;
				return row;
			}
			if (is_lost(best)) {
				best = row;
				*rank = candidate;
			}
			if (row == -EAGAIN)
				break;
		}
		/* the table of a near holder is on its way: a known one serves until then */
		if (best == -EAGAIN && good < HOLDER_NEAR)
			break;
	}
	return best;
}

static int add_piece(struct plan *plan, uint32_t rank, uint32_t row, uint64_t offset,
		     uint64_t size)
{
	plan->pieces[plan->n++] = (struct plan_piece){
		.rank = rank, .row = row, .offset = offset, .at = plan->covered, .size = size
	};
	plan->covered += size;
	return 0;
}

static int plan_param(struct engine *e, const struct location *p, uint64_t offset,
		      uint64_t size, struct plan *plan)
{
	uint64_t element = frag_dtype_size(p->dtype), begin = plan->covered;
	uint64_t end = begin + size;
	struct replicas_run run;
	uint32_t rank = 0;
	int row, rc = 0;

	while (plan->covered < end && plan->n < NODE_PIECES_MAX) {
		uint64_t at = offset + plan->covered - begin, inside = at % element, bytes;

		if (!run_at(e, p, at / element, &run))
			return -EINVAL;
		row = choose_holder(e, p, &run, &rank);
		if (row == -EAGAIN) /* goes on: all missing tables are fetched at once */
			rc = row;
		else if (row < 0 && !(is_lost(row) && plan->keep_lost))
			return row;
		bytes = u64_min(run.numel * element - inside, end - plan->covered);
		add_piece(plan, rank, (uint32_t)row, run.row_offset * element + inside, bytes);
		plan->pieces[plan->n - 1].lost = row < 0 ? row : 0;
	}
	return rc;
}

/* Finds the run of the parameter's elements that one rank holds. */
static int run_on_rank(struct engine *e, const struct location *p, uint32_t rank,
		       struct replicas_run *run)
{
	uint32_t place;
	struct layout_fragment f;

	if (!p->group)
		return lp_run(p, 0, run) ? 0 : -ENOENT;
	place = catalog_member(p->group, rank);
	if (place == CATALOG_NONE)
		return -ENOENT;
	if (p->kind == IN_WHOLE || p->kind == IN_LP)
		return run_at(e, p, 0, run) ? 0 : -ENOENT;
	place %= catalog_shards(p->group);
	if (p->kind == IN_LP_SHARDS) {
		struct cuts_box box = { .numel = 1 };
		bool inside = u64_mul(place, catalog_lp_piece(e->catalog, p->param_number),
				      &box.start);

		if (p->param->cuts)
			cuts_box(p->param->cuts, place, &box);
		inside &= box.numel && box.start < p->param->numel;
		return inside && lp_shard_run(e, p, box.start, run) ? 0 : -ENOENT;
	}
	if (!layout_on_shard(&p->group->layout, p->param->position,
			     p->group->layout.shards == 1 ? 0 : place, &f))
		return -ENOENT;
	*run = (struct replicas_run){ STATE_PARTITION,
				      p->group_number,
				      f.sub,
				      p->key,
				      f.partition_offset,
				      f.numel,
				      0,
				      0,
				      0 };
	return 0;
}

/* Finds the run of a parameter that one rank holds, and its row there. */
static int held_by(struct engine *e, const struct location *p, uint32_t rank,
		   struct replicas_run *run)
{
	int rc = run_on_rank(e, p, rank, run);

	return rc ? rc : row_on(e, p, rank, run->kind, run->index, run->sub, run->key);
}

/* Adds the pieces of a range to those that the plan has. */
static int add_read(struct engine *e, const struct engine_address *a, uint64_t since_ns,
		    uint64_t offset, uint64_t size, struct plan *plan)
{
	struct location p;
	struct replicas_run run;
	uint64_t element;
	int rc = locate(e, a, since_ns, &plan->table_of, &p);

	if (rc)
		return rc;
	element = frag_dtype_size(p.dtype);
	if (a->kind == ENGINE_RANK_PARAM) {
		rc = held_by(e, &p, a->rank, &run);
		if (rc < 0)
			return rc;
		p.bytes = run.numel * element;
		p.row = (uint32_t)rc;
	}
	if (offset > p.bytes || size > p.bytes - offset)
		return -EINVAL;
	if (a->kind == ENGINE_RANK_PARAM)
		return add_piece(plan, a->rank, p.row, run.row_offset * element + offset, size);
	if (p.kind == IN_ROW)
		return add_piece(plan, p.rank, p.row, offset, size);
	return plan_param(e, &p, offset, size, plan);
}

static void begin_plan(struct plan *plan)
{
	plan->n = 0;
	plan->covered = 0;
	plan->table_of = NULL;
}

int plan_read(struct engine *e, const struct engine_address *a, uint64_t since_ns,
	      uint64_t offset, uint64_t size, struct plan *plan)
{
	begin_plan(plan);
	return add_read(e, a, since_ns, offset, size, plan);
}

int plan_file(struct engine *e, const struct engine_file *f, uint64_t since_ns, uint64_t offset,
	      uint64_t size, struct plan *plan)
{
	int rc = 0;

	begin_plan(plan);
	for (uint32_t i = file_part_at(f, offset);
	     i < f->nparts && plan->covered < size && plan->n < NODE_PIECES_MAX && !rc; i++) {
		const struct file_part *p = &f->parts[i];
		uint64_t inside = offset + plan->covered - p->at;

		rc = add_read(e, &p->address, since_ns, inside,
			      u64_min(p->bytes - inside, size - plan->covered), plan);
	}
	return rc;
}

/* Returns true if the last table of a lost or silent rank says that it has no copy of the
 * parameter.
 */
static bool had_no_lp(const struct engine *e, const struct location *p, uint32_t rank)
{
	const struct states *states = e->peers[rank].states;

	return states && states_find(states, STATE_LP, p->param_number, 0, "") == -ENOENT;
}

static bool is_ok_or_waits(int rc)
{
	return !rc || rc == -EAGAIN;
}

/* Shows a holder's piece, unless row, of its table, is an error.  Once a table is missing no
 * further piece is shown, but the callers still look up the other holders, so that all missing
 * tables are fetched at once: rc stays -EAGAIN.
 */
static int see_next(int rc, int row, const struct plan_piece *piece, plan_see see, void *arg)
{
	if (row < 0)
		return row == -EAGAIN || !rc ? row : rc;
	return rc ? rc : see(arg, piece);
}

/* Every rank's copy of a parameter that is in no group: the catalog does not say which ranks
 * have registered it, but their tables of states say which have a copy.
 */
static int see_ungrouped(struct engine *e, const struct location *p, uint64_t offset,
			 uint64_t size, plan_see see, void *arg)
{
	int rc = 0;

	for (uint32_t rank = 0; rank < e->world && is_ok_or_waits(rc); rank++) {
		int row = row_on(e, p, rank, STATE_LP, p->param_number, 0, "");
		struct plan_piece piece = {
			.rank = rank, .row = (uint32_t)row, .offset = offset, .size = size
		};

		if (row == -ENOENT || peer_has_left(&e->peers[rank]) ||
		    (is_lost(row) && had_no_lp(e, p, rank)))
			continue;
		rc = see_next(rc, row, &piece, see, arg);
	}
	return rc;
}

static int see_holders(struct engine *e, const struct location *p,
		       const struct replicas_run *run, uint64_t inside, uint64_t at,
		       uint64_t bytes, plan_see see, void *arg)
{
	uint64_t element = frag_dtype_size(p->dtype);
	int rc = 0;

	for (uint32_t i = 0; i < run->count && is_ok_or_waits(rc); i++) {
		uint32_t rank = member(p, run->first + i * run->stride);
		int row = row_on(e, p, rank, run->kind, run->index, run->sub, run->key);
		struct plan_piece piece = { .rank = rank,
					    .row = (uint32_t)row,
					    .offset = run->row_offset * element + inside,
					    .at = at,
					    .size = bytes };

		if (row == -ENOENT && run->kind == STATE_LP)
			continue; /* this rank keeps no copy of the parameter */
		rc = see_next(rc, row, &piece, see, arg);
	}
	return rc;
}

/* Every rank of a group has its own copy of a hyper-parameter. */
static int see_hyper(struct engine *e, const struct location *p, uint64_t offset, uint64_t size,
		     plan_see see, void *arg)
{
	int rc = 0;

	for (uint32_t i = 0; i < p->group->nranks && is_ok_or_waits(rc); i++) {
		uint32_t rank = p->group->ranks[i];
		int row = row_on(e, p, rank, STATE_HYPER, p->group_number, 0, p->key);
		struct plan_piece piece = {
			.rank = rank, .row = (uint32_t)row, .offset = offset, .size = size
		};

		rc = see_next(rc, row, &piece, see, arg);
	}
	return rc;
}

static int see_param(struct engine *e, const struct location *p, uint64_t offset, uint64_t size,
		     plan_see see, void *arg)
{
	uint64_t element = frag_dtype_size(p->dtype), at = 0;
	struct replicas_run run;
	int rc = 0, here;

	while (at < size && is_ok_or_waits(rc)) {
		uint64_t inside = (offset + at) % element, bytes;

		if (!run_at(e, p, (offset + at) / element, &run))
			return -EINVAL;
		bytes = u64_min(run.numel * element - inside, size - at);
		here = see_holders(e, p, &run, inside, at, bytes, see, arg);
		rc = here ? here : rc;
		at += bytes;
	}
	return rc;
}

int plan_write(struct engine *e, const struct engine_address *a, uint64_t since_ns,
	       uint64_t offset, uint64_t size, plan_see see, void *arg)
{
	struct location p;
	struct plan plan;
	int rc;

	if (a->kind != ENGINE_PARAM && a->kind != ENGINE_HYPER) {
		rc = plan_read(e, a, since_ns, offset, size, &plan);
		return rc ? rc : see(arg, &plan.pieces[0]);
	}
	rc = locate(e, a, since_ns, NULL, &p);
	if (rc)
		return rc;
	if (offset > p.bytes || size > p.bytes - offset)
		return -EINVAL;
	if (a->kind == ENGINE_HYPER)
		return see_hyper(e, &p, offset, size, see, arg);
	if (!p.group)
		return see_ungrouped(e, &p, offset, size, see, arg);
	rc = see_param(e, &p, offset, size, see, arg);
	/* a sharded group may keep whole copies of small parameters beside the pieces */
	if (is_ok_or_waits(rc) && p.kind == IN_LP_SHARDS) {
		int pieces = rc;

		p.kind = IN_LP;
		rc = see_param(e, &p, offset, size, see, arg) ?: pieces;
	}
	return rc;
}

int plan_describe(struct engine *e, const struct engine_address *a, uint64_t since_ns,
		  struct engine_state *out)
{
	struct location p;
	struct replicas_run run;
	int rc = locate(e, a, since_ns, NULL, &p);

	if (rc)
		return rc;
	if (a->kind == ENGINE_RANK_PARAM) {
		rc = held_by(e, &p, a->rank, &run);
		if (rc < 0)
			return rc;
		p.bytes = run.numel * frag_dtype_size(p.dtype);
	}
	*out = (struct engine_state){ .dtype = p.dtype, .bytes = p.bytes };
	memcpy(out->key, a->key, sizeof(out->key));
	return 0;
}

/* The rank may have died since the plan was made, or answer again. */
int plan_lost_status(const struct engine *e, const struct plan_piece *piece)
{
	if (!piece->lost || e->peers[piece->rank].state == ENGINE_RANK_LOST)
		return peers_lost_status(e, piece->rank);
	return piece->lost;
}
