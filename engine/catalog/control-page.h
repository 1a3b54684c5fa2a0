/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_CONTROL_PAGE_H
#define ENGINE_CATALOG_CONTROL_PAGE_H

/* The control page of a rank: one page of its memory that a reader of its fragments reads
 * beside them.  The trainer's thread, inside frag_ calls, writes the words that say which bytes
 * are there (registry_epoch: under the registry's lock); the engine thread writes figures and
 * `events`.  Threads of the rank read it as atomics, other processes as bytes.  A new word
 * comes from `spare`, and into struct wire_control and wire_control_from_page.
 */

#include "engine/base/base.h"

#include <stdatomic.h>

enum control_phase {
	CONTROL_ATTACHED, /* before frag_ready */
	CONTROL_STABLE,   /* from step_end to step_begin */
	CONTROL_STEP,     /* inside step_begin .. step_end */
	CONTROL_FROZEN,   /* held at a boundary */
	CONTROL_CLOSED,   /* frag_close was called, or the engine detached itself */
};

struct control_page {
	uint64_t cookie[2];              /* random; tells this process from all others */
	_Atomic uint64_t sequence;       /* odd while state changes */
	_Atomic uint64_t registry_epoch; /* grows when memory is registered or dropped */
	_Atomic uint64_t step;           /* steps ended */
	_Atomic uint64_t boundary;       /* boundaries passed */
	_Atomic uint64_t generation;     /* the newest that this rank has */
	/* odd while gradients are valid; grows as they become valid and as they are gone */
	_Atomic uint64_t grads;
	_Atomic uint32_t phase; /* enum control_phase */
	/* thread that passes boundaries, in the rank's pid namespace; 0: none has yet */
	_Atomic uint32_t trainer;
	_Atomic double loss_scale;   /* of the valid gradients */
	_Atomic uint64_t bytes_host; /* states, in host memory */
	/* events told by the engine thread: engine/node/event-log.h */
	_Atomic uint64_t events;
	_Atomic uint64_t kept_bytes; /* bytes copied for views before they changed, ever */
	/* how long readers, edits and freezes have held the trainer's thread, ever */
	_Atomic uint64_t held_ns;
	/* states on NVMe; all 0 where there are none */
	_Atomic uint64_t swap_bytes;                                 /* registered */
	_Atomic uint64_t swap_in_bytes, swap_out_bytes, swap_errors; /* ever */
	_Atomic uint64_t pinned_bytes, pinned_lent;
	/* the arena; all 0 where there is none */
	_Atomic uint64_t arena_bytes, arena_used, arena_used_max, arena_largest, arena_moved;
	/* memory of devices; all 0 where there is none */
	_Atomic uint64_t bytes_device;                                      /* registered */
	_Atomic uint64_t device_from_bytes, device_to_bytes, device_errors; /* copies, ever */
	_Atomic uint64_t device_kept;  /* bytes preserved there, now */
	_Atomic uint64_t swap_damaged; /* blocks on NVMe, ever */
	/* times; 0: none yet */
	_Atomic uint64_t generation_ns; /* CLOCK_REALTIME when `generation` came about */
	_Atomic uint64_t boundary_ns;   /* CLOCK_REALTIME when the last boundary was entered */
	_Atomic uint64_t interval_ns;   /* longest of: last boundary to boundary, last step */
	uint8_t spare[48];
};
static_assert(sizeof(struct control_page) == 320, "control page");

static inline const char *control_page_phase_name(uint32_t phase)
{
	static const char *const names[] = { [CONTROL_ATTACHED] = "ready",
					     [CONTROL_STABLE] = "stable",
					     [CONTROL_STEP] = "step",
					     [CONTROL_FROZEN] = "frozen",
					     [CONTROL_CLOSED] = "closed" };

	return phase < ARRAY_SIZE(names) ? names[phase] : "?";
}

/* Stores a figure, from which a reader concludes nothing about other memory. */
static inline void control_page_put(_Atomic uint64_t *word, uint64_t value)
{
	atomic_store_explicit(word, value, memory_order_relaxed);
}

/* Raises a counter to at least `to`, by a multiple of `unit`, so that units counted by others
 * meanwhile are not lost.
 */
static inline void control_page_raise(_Atomic uint64_t *word, uint64_t to, uint64_t unit)
{
	uint64_t now = atomic_load(word);

	if (to > now)
		atomic_fetch_add(word, (to - now + unit - 1) / unit * unit);
}

enum { CONTROL_GENERATIONS = 1000000 };

/* Returns the generation of a step that ends at a boundary; edits at that boundary make the
 * generations that follow.
 */
static inline uint64_t control_page_generation(uint64_t boundary)
{
	return boundary * CONTROL_GENERATIONS;
}

/* Returns the number by which views know the content of a rank's memory: the page's generation
 * counted from 1 and, for gradients, also the number of their window.  0: the content is being
 * changed, or gradients are not valid.
 */
static inline uint64_t control_page_content(const struct control_page *page, bool is_grad)
{
	uint64_t grads = atomic_load_explicit(&page->grads, memory_order_seq_cst);

	if ((atomic_load_explicit(&page->sequence, memory_order_seq_cst) & 1) ||
	    (is_grad && !(grads & 1)))
		return 0;
	/* both numbers only grow, so that no two sums are equal, even above 2^40 generations */
	return (is_grad ? grads << 40 : 0) +
	       atomic_load_explicit(&page->generation, memory_order_seq_cst) + 1;
}

/* Returns the newest content that there is; while control_page_content() is 0, the one that was
 * last.
 */
static inline uint64_t control_page_newest(const struct control_page *page, bool is_grad)
{
	uint64_t grads = atomic_load_explicit(&page->grads, memory_order_seq_cst);

	if (is_grad && !grads)
		return 0;
	return (is_grad ? (grads - !(grads & 1)) << 40 : 0) +
	       atomic_load_explicit(&page->generation, memory_order_seq_cst) + 1;
}

#endif
