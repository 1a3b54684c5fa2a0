/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_WIRE_H
#define ENGINE_CATALOG_WIRE_H

/* Messages between engines.  Little-endian, fixed-width, no padding inside; a message is a
 * header, a body struct, and for some a tail of counted bytes.
 *
 *  a rank r joins its job                      an observer comes
 *    r -> 0  JOIN {entry, catalog hash}          o -> any  HELLO
 *    0 -> r  JOINED {need}                       o <- any  WELCOME {ranks, catalog size, ready}
 *    r -> 0  CATALOG_PUT* (if needed) -> ACK     o -> any  TABLE_GET -> TABLE*
 *                                                o -> any  CATALOG_GET -> CATALOG*
 *    r -> 0  HELLO ... as an observer does, until ready
 * A rank that comes back joins in the same way, and continues the counts of rank 0.  When rank
 * 0 comes back, the others join it anew, and it takes incarnation and counts from them.
 *
 *  reading                                     writing (one transaction, any number of ranks)
 *    x -> r  STATES_GET -> STATES*               x -> r  STAGE* -> ACK     kept aside
 *    x -> r  VIEW_OPEN -> VIEW, VIEW_CLOSE       x -> c  COMMIT  c: the lowest live rank
 *    x -> r  READ -> DATA, STATS -> SUMS         x -> r  COMPUTE* -> ACK   kept aside too
 *    x -> r  RANK_QUERY -> RANK_TEXT             c -> all PREPARE{boundary N} -> VOTE
 *  life                                          x <- c  ACCEPTED{N}       all have voted yes
 *    x -> r  PING {observer} -> PONG {control page}
 *                                                r -> c  ARRIVED -> ACK, KNOWN   r waits at N
 *    x -> r  WAIT -> CHANGED {control page}      c -> all DECIDE{commit or not} -> ACK,
 *                                                c <- all  APPLIED, when N is passed
 *    r -> all  LEAVE -> ACK                      x <- c  APPLIED
 *    r -> x  LEFT{rank} -> ACK: r itself, or, by rank 0, a rank that has said LEAVE to it
 *  between ranks                                 x -> c  CANCEL            before it is decided
 *    r -> 0  BARRIER{n} -> PASSED to all, or     x -> r  OUTCOME -> KNOWN  when c is gone
 *      REFUSE with the names of absent ranks     r -> c  DROPPED   x is gone before its COMMIT
 *
 * A freeze is agreed on as an edit is, by a COMMIT without holders; APPLIED then says that the
 * trainers stand at N.  x -> all RENEW every second, or the freeze ends; x -> all THAW ends it,
 * with transaction 0 also that of another process.
 *
 * A watch is a freeze whose COMMIT and PREPARE end with a condition.  At N all ranks wait, and
 * r -> c CHECKED {what r has found} -> ACK, KNOWN; c -> all PREPARE{N + 1} lets them go on, and
 * DECIDE, where the condition holds, makes them stand.
 *
 * A round is agreed on as an edit is, with x -> r ROUND -> ACK in place of STAGE.  The life of
 * the communicator that rounds go by: c -> all INVITE -> ACK, c -> members FORM -> ACK, and
 * DISBAND -> ACK from a rank that sees it fail to all members.
 *
 * x -> r PREFETCH -> LANDED: a rank on x's host has bytes of x's view brought to its memory by
 * a round, and says where; VIEW_CLOSE of the PREFETCH's number frees that memory.
 *
 * x -> r PLACE -> ACK, or REFUSE with the reason: r moves states to another tier at boundaries
 * of its own, since what they are does not change.
 *
 * r -> o FABRIC -> ACK: o connects to r by the fabric, answers r's questions for bytes there,
 * or stops (engine/node/fabric.h).
 *
 * r -> m RENDEZVOUS -> RENDEZVOUS_OVER to all ranks of a group: they meet in frag_gather or
 * frag_scatter, before and after; m, the lowest live rank of the group, counts them.
 *
 * A request carries a number of the sender's choosing, and its answers carry the same number.
 * A refusal is ACK with -errno, or REFUSE with a line for people.
 */

#include "engine/base/base.h"
#include "engine/catalog/control-page.h"
#include "engine/frag.h"

#include <sys/uio.h>

enum {
	WIRE_MAGIC = 0x47415246,    /* "FRAG" */
	WIRE_VERSION = 23,          /* grows with every change of a struct below */
	WIRE_OBSERVER = UINT32_MAX, /* header.rank of an engine without a rank */
	WIRE_CHUNK = 1 << 20,       /* bytes of state or catalog in one message */
	WIRE_COPIED_MAX = 2 << 20,  /* bytes that a rank copies for one STAGE: a mount's slab */
	WIRE_TABLE_ROWS = 1024,     /* rank entries in one TABLE */
	WIRE_CATALOG_MAX = 1 << 28, /* bytes of a catalog, of a table of states */
	WIRE_ROUND_PIECES = 256,    /* wire_piece in one ROUND */
	WIRE_STATS_RANGES = 1024,   /* wire_range in one STATS */
	WIRE_WAITS_MAX = 256,       /* WAIT messages that one rank keeps: one for each peer */
	WIRE_WAIT_MS = 500,         /* the longest that a WAIT waits for a change */
	WIRE_EVENTS_MAX = 1 << 16,  /* bytes of events in one CHANGED */
	WIRE_FOUND_MAX = 1 << 15,   /* wire_found in one CHECKED */
	WIRE_OPERATION_MAX = 40,    /* bytes of an operation as events show it */
};

enum wire_type {
	WIRE_REFUSE = 1,
	WIRE_ACK,
	WIRE_HELLO,
	WIRE_WELCOME,
	WIRE_JOIN,
	WIRE_JOINED,
	WIRE_LEAVE,
	WIRE_TABLE_GET,
	WIRE_TABLE,
	WIRE_CATALOG_PUT,
	WIRE_CATALOG_GET,
	WIRE_CATALOG,
	WIRE_STATES_GET,
	WIRE_STATES,
	WIRE_READ,
	WIRE_DATA,
	WIRE_STAGE,
	WIRE_DECIDE,
	WIRE_APPLIED,
	WIRE_PING,
	WIRE_PONG,
	WIRE_BARRIER,
	WIRE_COMMIT,
	WIRE_ACCEPTED,
	WIRE_CANCEL,
	WIRE_PREPARE,
	WIRE_VOTE,
	WIRE_ARRIVED,
	WIRE_OUTCOME,
	WIRE_KNOWN,
	WIRE_VIEW_OPEN,
	WIRE_VIEW,
	WIRE_VIEW_CLOSE,
	WIRE_WAIT,
	WIRE_CHANGED,
	WIRE_RENEW,
	WIRE_THAW,
	WIRE_PASSED,
	WIRE_DROPPED,
	WIRE_RANK_QUERY,
	WIRE_RANK_TEXT,
	WIRE_ROUND,
	WIRE_INVITE,
	WIRE_FORM,
	WIRE_DISBAND,
	WIRE_RENDEZVOUS,
	WIRE_RENDEZVOUS_OVER,
	WIRE_FABRIC,
	WIRE_PREFETCH,
	WIRE_LANDED,
	WIRE_LEFT,
	WIRE_STATS,
	WIRE_SUMS,
	WIRE_CHECKED,
	WIRE_COMPUTE,
	WIRE_PLACE,
	WIRE_TYPES,
};

/* The first 8 bytes never change between versions. */
struct wire_header {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint64_t request;
	uint64_t job; /* hash of the job id; 0 from an observer that does not know it yet */
	uint64_t incarnation; /* of the job: its first rank 0's cookie; 0: not known yet */
	uint64_t membership;  /* epoch of the sender's rank table */
	uint32_t rank;
	/* of a rank: 32 bits of its process's cookie; of an observer: of its engine_id */
	uint32_t life;
};
static_assert(sizeof(struct wire_header) == 48, "wire");

/* The tail of the PING that an observer sends each second; other PINGs have none. */
struct wire_observer {
	int64_t pid;
	uint32_t uid;
	uint32_t writes; /* not 0: edits are allowed */
	char host[64];
	char program[32];
};
static_assert(sizeof(struct wire_observer) == 112, "wire");

struct wire_refuse {
	int32_t status; /* -errno */
	char why[124];
};
static_assert(sizeof(struct wire_refuse) == 128, "wire");

struct wire_left {
	uint32_t rank;
	uint32_t life; /* as in the header of messages of its process */
};
static_assert(sizeof(struct wire_left) == 8, "wire");

struct wire_ack {
	int32_t status; /* 0 or -errno */
	uint32_t reserved;
};
static_assert(sizeof(struct wire_ack) == 8, "wire");

/* A row of the table of ranks (struct wire_table). */
struct wire_entry {
	uint32_t rank;
	uint32_t uid;
	int64_t pid;
	uint64_t control; /* address of its control page */
	uint64_t cookie[2];
	char host[64];     /* two ranks with the same one can read each other's memory */
	char hostname[64]; /* for people */
	char address[128]; /* the endpoint of the rank's transport */
	uint32_t present;  /* 0: the rank has not joined, or has left */
	uint32_t bulk;     /* the TCP port of the rank's bulk port, at the same host; 0: none */
};
static_assert(sizeof(struct wire_entry) == 304, "wire");

/* A copy of a rank's struct control_page. */
struct wire_control {
	uint64_t cookie[2];
	uint64_t sequence;
	uint64_t registry_epoch;
	uint64_t step;
	uint64_t boundary;
	uint64_t generation;
	uint64_t grads;
	uint32_t phase;
	uint32_t trainer;
	uint64_t loss_scale; /* bits of a double */
	uint64_t bytes_host;
	uint64_t events;
	uint64_t kept_bytes;
	uint64_t held_ns;
	uint64_t swap_bytes;
	uint64_t swap_in_bytes, swap_out_bytes, swap_errors;
	uint64_t pinned_bytes, pinned_lent;
	uint64_t arena_bytes, arena_used, arena_used_max, arena_largest, arena_moved;
	uint64_t bytes_device, device_from_bytes, device_to_bytes, device_errors;
	uint64_t device_kept;
	uint64_t swap_damaged;
	uint64_t generation_ns, boundary_ns, interval_ns;
};
static_assert(sizeof(struct wire_control) == 272, "wire");

struct wire_join {
	struct wire_entry entry;
	uint32_t world;
	uint32_t reserved;
	uint64_t catalog_hash;
	uint64_t catalog_bytes;
	uint64_t barrier; /* the number of the last barrier that the rank has passed */
	struct wire_control control;
};
static_assert(sizeof(struct wire_join) == 608, "wire");

struct wire_joined {
	uint32_t need_catalog;
	uint32_t complete; /* 1: all ranks had joined before; this one comes back */
	uint64_t incarnation;
	uint64_t barrier;            /* the last that rank 0 has passed */
	struct wire_control control; /* of rank 0 */
};
static_assert(sizeof(struct wire_joined) == 296, "wire");

struct wire_welcome { /* then, while the job is not complete, uint32_t of each absent rank */
	char job[128];
	uint32_t world;
	uint32_t joined; /* number of ranks that have joined */
	uint64_t incarnation;
	uint64_t membership;
	uint64_t catalog_hash; /* 0: the job is not complete yet */
	uint64_t catalog_bytes;
};
static_assert(sizeof(struct wire_welcome) == 168, "wire");

struct wire_page {      /* TABLE_GET, CATALOG_GET, STATES_GET */
	uint64_t first; /* row, or byte, that the answer begins with */
};

struct wire_table { /* then count wire_entry */
	uint64_t membership;
	uint32_t total;
	uint32_t first;
	uint32_t count;
	uint32_t reserved;
};
static_assert(sizeof(struct wire_table) == 24, "wire");

struct wire_catalog { /* CATALOG, CATALOG_PUT; then size bytes */
	uint64_t hash;
	uint64_t total;
	uint64_t offset;
	uint64_t size;
};
static_assert(sizeof(struct wire_catalog) == 32, "wire");

struct wire_states { /* then size bytes of the encoded table (engine/catalog/states.h) */
	uint64_t epoch;
	uint64_t total;
	uint64_t offset;
	uint64_t size;
};
static_assert(sizeof(struct wire_states) == 32, "wire");

struct wire_read {
	uint64_t epoch; /* of the registry in which the state has this index */
	uint32_t state;
	uint32_t size; /* at most WIRE_CHUNK */
	uint64_t offset;
	uint64_t view[2]; /* offset is in this view; 0: in the state's present bytes */
};
static_assert(sizeof(struct wire_read) == 40, "wire");

struct wire_stats {     /* then count wire_range */
	uint64_t id;    /* chosen by the observer; a repetition of the request has the same */
	uint32_t count; /* at most WIRE_STATS_RANGES; 0: what has this id is not wanted */
	uint32_t bins;  /* 1: with the bins of engine/stats/stats.h */
};
static_assert(sizeof(struct wire_stats) == 16, "wire");

struct wire_range { /* as struct wire_read, of any size */
	uint64_t epoch;
	uint64_t offset;
	uint64_t size; /* of whole elements */
	uint64_t view[2];
	uint32_t state;
	uint32_t dtype; /* enum frag_dtype */
};
static_assert(sizeof(struct wire_range) == 48, "wire");

struct wire_summed { /* then count wire_sums, then their bins, if these were asked for */
	uint32_t count;
	uint32_t bins;
};
static_assert(sizeof(struct wire_summed) == 8, "wire");

struct wire_sums {        /* the statistics of a range: struct stats */
	int32_t status;   /* 0; -EAGAIN: the bytes were being changed; other -errno */
	int32_t scale;    /* of deviations and squares */
	uint64_t content; /* without a view: control_page_content of the bytes */
	uint64_t count, finite, nan, inf, zero;
	uint64_t first_nan, first_inf;                /* elements of the range */
	uint64_t min, max, mean, deviations, squares; /* bits of doubles */
};
static_assert(sizeof(struct wire_sums) == 112, "wire");

struct wire_view_open { /* then count struct wire_view_run, whose states are in one tier */
	/* Chosen by the observer.  VIEW_OPEN of a view that is open asks for its state, or
	 * moves it to the newer generation `want`; its runs stay.
	 */
	uint64_t view[2];
	uint64_t epoch;
	uint64_t want; /* the view's generation; 0: the present one, or the next */
	uint32_t count;
	uint32_t reserved;
};
static_assert(sizeof(struct wire_view_open) == 40, "wire");

/* READ of a view counts bytes through its runs, one after the other. */
struct wire_view_run {
	uint64_t offset;
	uint64_t size;
	uint32_t state;
	uint32_t reserved;
};
static_assert(sizeof(struct wire_view_run) == 24, "wire");

struct wire_view {
	int32_t status;
	uint32_t state; /* enum view_state */
	uint64_t generation;
	uint64_t buffer; /* address of the view's buffer in the rank (view-pool.h) */
};
static_assert(sizeof(struct wire_view) == 24, "wire");

enum wire_wait_how {
	WIRE_WAIT_NUMBERS, /* until the control page differs from the numbers in the message */
	WIRE_WAIT_EVENTS,  /* until that, or until there are events after number `events` */
	WIRE_WAIT_NOT,     /* answered at once, with the newest event's number */
	WIRE_WAIT_KEPT,    /* answered at once, with all kept events after number `events` */
};

struct wire_wait {
	uint64_t step;
	uint64_t generation;
	uint64_t events;
	uint32_t phase;
	uint32_t how; /* enum wire_wait_how */
};
static_assert(sizeof(struct wire_wait) == 32, "wire");

struct wire_changed { /* then size bytes of events, a line of JSON each */
	struct wire_control control;
	uint64_t events; /* number of the last event here; without one, as in the WAIT */
	uint32_t size;   /* at most WIRE_EVENTS_MAX */
	uint32_t reserved;
};
static_assert(sizeof(struct wire_changed) == 288, "wire");

struct wire_data { /* then size bytes */
	int32_t status;
	uint32_t size;
	struct wire_control control; /* of a moment after the bytes were read */
};
static_assert(sizeof(struct wire_data) == 280, "wire");

/* The writer and its edit, as events show them.  The writer fills all but `writer`, which the
 * receiver sets.
 */
struct wire_origin {
	uint32_t writer; /* rank; WIRE_OBSERVER: a mount */
	uint32_t uid;
	int64_t pid;
	uint64_t bytes;
	uint32_t kind; /* enum engine_address_kind, of the first file */
	uint32_t param;
	uint32_t group;
	uint32_t files;
	uint32_t rank, sub; /* of an address that is one rank's alone */
	char host[64];
	char key[FRAG_KEY_MAX + 1];
	char operation[WIRE_OPERATION_MAX]; /* "": the edit writes bytes */
};
static_assert(sizeof(struct wire_origin) == 216, "wire");

struct wire_memory { /* of a process of the rank's host */
	uint64_t pid;
	uint64_t word; /* address of the word by which the rank knows a writer */
	uint64_t address;
};

/* Then size bytes, or, where from.pid is not 0, none: the rank copies them.  ACK -ENOLINK: the
 * rank cannot, and the bytes are to be sent.
 */
struct wire_stage {
	uint64_t transaction[2];
	uint64_t epoch;
	uint32_t state;
	uint32_t size; /* at most WIRE_CHUNK in the message, WIRE_COPIED_MAX of `from` */
	uint64_t offset;
	struct wire_memory from;
	struct wire_origin origin;
};
static_assert(sizeof(struct wire_stage) == 280, "wire");

enum wire_operator {
	WIRE_SET, /* sets elements to `value` */
	WIRE_MULTIPLY,
	WIRE_DIVIDE,
	WIRE_ADD,
	WIRE_SUBTRACT,
	WIRE_FOLLOW, /* to the elements of the row `master`, converted; after the others */
	WIRE_OPERATORS,
};

struct wire_axis {
	uint64_t count;
	uint64_t stride; /* elements */
};

/* As STAGE, but the rank computes the new elements from those that it has at the boundary.  The
 * elements are a slice (struct slice in rising order) of an array, of which the row has [start,
 * end), from its element `at` on.
 */
struct wire_compute {
	uint64_t transaction[2];
	uint64_t epoch;
	uint32_t state;
	uint32_t dtype; /* enum frag_dtype: the row's */
	uint64_t start, end, at;
	uint64_t first;
	uint32_t naxes;
	uint32_t code;     /* enum wire_operator */
	uint64_t number;   /* bits of a double */
	uint8_t value[16]; /* an element */
	uint32_t master;   /* FOLLOW: the row, in which `start` is element master_at */
	uint32_t master_dtype;
	uint64_t master_at;
	struct wire_axis axes[FRAG_DIMS_MAX];
	struct wire_origin origin;
};
static_assert(sizeof(struct wire_compute) == 584, "wire");

struct wire_piece { /* a range of a state that a round sends */
	uint64_t epoch;
	uint64_t offset;
	uint64_t size;
	uint32_t state;
	uint32_t rank; /* PREFETCH: the owner */
};
static_assert(sizeof(struct wire_piece) == 32, "wire");

struct wire_round { /* then count wire_piece, in the order in which the rank sends them */
	uint64_t transaction[2];
	uint64_t view[2];      /* the pieces' view; 0: their bytes at the boundary */
	uint64_t communicator; /* the number of the communicator */
	uint32_t count;
	uint32_t reserved;
};
static_assert(sizeof(struct wire_round) == 48, "wire");

struct wire_prefetch {    /* then count wire_piece; count 0: the state of an earlier PREFETCH */
	uint64_t id[2];   /* chosen by the observer */
	uint64_t view[2]; /* the pieces' view */
	uint32_t count;
	uint32_t tier;    /* enum state_tier, of all the pieces' states */
	uint32_t wait_ms; /* the longest wait for a boundary */
	uint32_t soon;    /* 1: refused if the last boundaries lay farther apart than wait_ms */
};
static_assert(sizeof(struct wire_prefetch) == 48, "wire");

/* The reason for which bytes go by the host instead of a round. */
enum wire_fallback {
	WIRE_FALLBACK_NONE,
	WIRE_FALLBACK_TOLD,         /* an option of the mount or of the job says so */
	WIRE_FALLBACK_SIZE,         /* too few bytes */
	WIRE_FALLBACK_REACH,        /* no rank on the mount's host can land them */
	WIRE_FALLBACK_TIER,         /* the communicator does not reach their tier */
	WIRE_FALLBACK_BOUNDARY,     /* no boundary is passed in time */
	WIRE_FALLBACK_COMMUNICATOR, /* the job has no communicator now */
	WIRE_FALLBACK_BROKEN,       /* the round failed, or a rank was lost */
	WIRE_FALLBACK_VIEW,         /* an owner has the view no more */
	WIRE_FALLBACK_ROOM,         /* no landing memory is free */
	WIRE_FALLBACK_LATE,         /* the landing memory was reclaimed before it was read */
	WIRE_FALLBACKS,
};

struct wire_landed {
	int32_t status;    /* 0, or -errno */
	uint32_t fallback; /* enum wire_fallback */
	uint64_t address;  /* in the rank, of the labelled buffer (engine/memory/view-pool.h) */
};
static_assert(sizeof(struct wire_landed) == 16, "wire");

struct wire_form {       /* then count uint32_t: the rank of each member */
	uint64_t number; /* of the communicator */
	uint32_t count;
	/* 1: a repetition; a member that has lost the communicator answers -ENOENT */
	uint32_t made;
	uint8_t id[128]; /* struct collective_id */
};
static_assert(sizeof(struct wire_form) == 144, "wire");

enum { WIRE_RENDEZVOUS_LEFT = UINT32_MAX }; /* a stage: the rank waits no more */

struct wire_rendezvous {         /* a rank has reached a stage of frag_gather or frag_scatter */
	uint64_t count;          /* of the messages RENDEZVOUS of this process */
	uint64_t communicator;   /* the number of the one that the rank could use; 0: none */
	uint64_t boundary;       /* the last that the rank has passed */
	uint64_t held;           /* wire_hash of the table of holders, as this rank knows it */
	uint64_t transaction[2]; /* of the root's bytes */
	uint32_t group, param;
	uint32_t root;    /* the rank that scatters; WIRE_OBSERVER: all gather */
	uint32_t stage;   /* 0: the rank has come */
	uint32_t wait_ms; /* the longest wait for the other ranks */
	int32_t status;   /* 0, or the -errno with which the rank failed before this stage */
	char key[FRAG_KEY_MAX + 1];
};
static_assert(sizeof(struct wire_rendezvous) == 136, "wire");

enum wire_rendezvous_why {
	WIRE_RENDEZVOUS_AWAY,    /* the rank has not come, or is lost */
	WIRE_RENDEZVOUS_DIFFERS, /* the rank's call has other arguments than the first rank's */
	WIRE_RENDEZVOUS_SAID,    /* the status is the rank's own */
};

struct wire_rendezvous_over {
	int32_t status; /* 0: all ranks have reached the stage */
	uint32_t rank;  /* the one for which status is not 0 */
	uint32_t why;   /* enum wire_rendezvous_why */
	uint32_t reserved;
	uint64_t transaction[2]; /* the root's */
};
static_assert(sizeof(struct wire_rendezvous_over) == 32, "wire");

struct wire_disband {
	uint64_t number;
	char why[72];
};
static_assert(sizeof(struct wire_disband) == 80, "wire");

struct wire_decide {
	uint64_t transaction[2];
	uint32_t commit; /* 0: abort */
	int32_t status;  /* of an abort: -errno */
};
static_assert(sizeof(struct wire_decide) == 24, "wire");

struct wire_applied {
	int32_t status;
	uint32_t reserved;
	uint64_t generation;
};
static_assert(sizeof(struct wire_applied) == 16, "wire");

struct wire_transaction { /* CANCEL, ARRIVED, OUTCOME, VIEW_CLOSE, RENEW */
	uint64_t transaction[2];
};

struct wire_thaw {
	uint64_t transaction[2]; /* the freeze; {0, 0}: any */
	struct wire_origin origin;
};
static_assert(sizeof(struct wire_thaw) == 232, "wire");

struct wire_dropped { /* an edit whose staged bytes will never be committed */
	uint64_t transaction[2];
	struct wire_origin origin;
	char why[72];
};
static_assert(sizeof(struct wire_dropped) == 304, "wire");

enum wire_quantity { WIRE_NAN, WIRE_INF, WIRE_NORM, WIRE_ABSMAX, WIRE_QUANTITIES };

struct wire_condition {    /* engine/catalog/condition.h */
	uint32_t quantity; /* enum wire_quantity, of each parameter */
	uint32_t reserved;
	uint64_t above; /* bits of a double; the condition holds where the quantity is above */
	char key[FRAG_KEY_MAX + 1];
	char pattern[128]; /* of the names of parameters */
};
static_assert(sizeof(struct wire_condition) == 208, "wire");

struct wire_checked { /* then count wire_found, rising by parameter */
	uint64_t transaction[2];
	uint64_t boundary; /* at which the rank waits */
	uint64_t step;     /* steps that it has ended */
	int32_t status;    /* 0, or the -errno with which it could not look at its fragments */
	uint32_t count;    /* at most WIRE_FOUND_MAX */
};
static_assert(sizeof(struct wire_checked) == 40, "wire");

struct wire_found { /* one rank's part of a parameter's quantity */
	uint32_t param;
	uint32_t reserved;
	uint64_t element; /* the first that counts, in stored order; NORM: 0 */
	uint64_t value;   /* bits of a double; NORM: the norm of the rank's part */
};
static_assert(sizeof(struct wire_found) == 24, "wire");

/* Then count uint32_t: the ranks that hold staged bytes, rising; or, if this is a watch, a
 * wire_condition.
 */
struct wire_commit {
	uint64_t transaction[2];
	uint32_t count;
	uint32_t grads; /* 1: some are gradients */
	/* Gradients: control_page.grads of the window that they belong to.  0: the window that
	 * is open at the coordinator, or the first of the next ones that has a boundary.
	 */
	uint64_t window;
	uint32_t freeze_ms; /* the longest that a freeze lasts; 0: this is no freeze */
	uint32_t round;     /* 1: a round, whose pieces ROUND has told the ranks */
	struct wire_origin origin;
};
static_assert(sizeof(struct wire_commit) == 256, "wire");

struct wire_accepted {
	uint64_t boundary;
};

struct wire_prepare { /* then, if this is a watch, a wire_condition */
	uint64_t transaction[2];
	uint64_t boundary;    /* N: not to be passed without the decision */
	uint64_t order;       /* position among the transactions of one boundary */
	uint64_t window;      /* as wire_commit's, never 0 for gradients */
	uint32_t holder;      /* 1: bytes were staged with this rank */
	uint32_t coordinator; /* rank */
	uint32_t freeze_ms;   /* as wire_commit's */
	uint32_t round;
	uint32_t or_later; /* 1: or for the first later window that has a boundary */
	uint32_t reserved;
	struct wire_origin origin;
};
static_assert(sizeof(struct wire_prepare) == 280, "wire");

struct wire_vote {
	int32_t status; /* 0: yes; -EAGAIN: no, N is passed already; other -errno: no */
	uint32_t reserved;
	uint64_t boundary; /* the last that this rank has passed */
};
static_assert(sizeof(struct wire_vote) == 16, "wire");

enum wire_outcome { WIRE_UNDECIDED, WIRE_COMMITTED, WIRE_ABORTED, WIRE_COORDINATED };

struct wire_known {
	uint64_t transaction[2];
	uint32_t outcome; /* enum wire_outcome: engine/commit/termination.h */
	uint32_t reserved;
};
static_assert(sizeof(struct wire_known) == 24, "wire");

struct wire_place {
	uint32_t tier;  /* enum state_tier */
	uint32_t asked; /* 1: nothing moves, and the answer says whether all are there */
	char key[FRAG_KEY_MAX + 1]; /* a pattern of states' keys */
	char pattern[128];          /* of the names of parameters, as wire_condition's */
};
static_assert(sizeof(struct wire_place) == 200, "wire");

struct wire_rank_query {
	char what[16]; /* "swap", "pinned", "arena", "nccl", "log", "place" ... */
};

struct wire_rank_text { /* then size bytes of text */
	uint32_t size;  /* at most WIRE_CHUNK */
	uint32_t reserved;
};
static_assert(sizeof(struct wire_rank_text) == 8, "wire");

/* BARRIER: the numbers of the rank that has reached the barrier.  PASSED: the highest of all
 * ranks, which all ranks take over.
 */
struct wire_barrier {
	uint64_t count; /* the barrier's number: 1, 2, ... */
	uint64_t step, boundary, generation, grads;
	uint32_t wait_ms; /* REFUSE names the absent ranks after so long; 0: no limit */
	uint32_t reserved;
};
static_assert(sizeof(struct wire_barrier) == 48, "wire");

enum wire_fabric_what { WIRE_FABRIC_CALL, WIRE_FABRIC_USE, WIRE_FABRIC_STOP };

struct wire_fabric { /* engine/node/fabric.h */
	char address[64];
	uint64_t token;
	uint32_t what;
	uint32_t reserved;
};
static_assert(sizeof(struct wire_fabric) == 80, "wire");

/* Checks magic, version, type and size.  Returns the body, and *tail, the bytes after it; NULL:
 * not a message of this protocol (*status -EPROTO: of another version).  Any thread.
 */
const void *wire_open(const void *message, size_t size, struct wire_header *header,
		      const void **tail, size_t *tail_size, int *status);

/* A status that another engine sent, checked: 0 or -errno; any other number becomes -EIO. */
int wire_status(int32_t sent);

/* The size of the fixed body of a type; 0: it has none. */
size_t wire_body_size(enum wire_type type);
const char *wire_type_name(enum wire_type type); /* "READ"; "?": no such type */

/* Returns true if text, a char array of size bytes, ends inside it. */
bool wire_text_ok(const char *text, size_t size);

void wire_control_from_page(struct wire_control *to, const struct control_page *page);

/* ---- variable data: a cursor that never leaves its buffer ---- */

struct wire_reader {
	const uint8_t *at;
	const uint8_t *end;
	bool bad; /* the buffer was too short: everything read since is 0 */
};

uint8_t wire_get_u8(struct wire_reader *r);
uint32_t wire_get_u32(struct wire_reader *r);
uint64_t wire_get_u64(struct wire_reader *r);
/* Borrowed from the buffer; NULL and bad when size bytes are not there. */
const void *wire_get_bytes(struct wire_reader *r, uint64_t size);

struct wire_writer {
	uint8_t *data; /* grows; the caller's to free */
	size_t size;
	size_t room;
	bool bad; /* no memory */
};

void wire_put_u8(struct wire_writer *w, uint8_t v);
void wire_put_u32(struct wire_writer *w, uint32_t v);
void wire_put_u64(struct wire_writer *w, uint64_t v);
void wire_put_bytes(struct wire_writer *w, const void *bytes, size_t size);

/* FNV-1a, 64 bit, in parts: hash is WIRE_HASH_BEGIN for the first, then the last result. */
#define WIRE_HASH_BEGIN 0xcbf29ce484222325u
uint64_t wire_hash_more(uint64_t hash, const void *bytes, size_t size);
uint64_t wire_hash_end(uint64_t hash); /* never 0 */
/* FNV-1a, 64 bit; never 0. */
uint64_t wire_hash(const void *bytes, size_t size);

#endif
