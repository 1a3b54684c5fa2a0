/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/commit/edit-report.h"

#include "engine/base/log.h"
#include "engine/commit/coordinator.h"
#include "engine/node/event-log.h"
#include "engine/node/peers.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

enum { STAGED_SILENT_MS = 60000 }; /* of its writer: then an edit that is staged is aborted */

static void report_applied(struct engine *e, const struct edit *edit)
{
	struct wire_applied applied = {
		.status = edit->status,
		.generation = edit->boundary,
	};

	if (edit->peer != EDIT_PEER_NONE)
		node_send(e, edit->peer, WIRE_APPLIED, edit->request, &applied, NULL, 0);
	if (edit->status || edit->is_round) /* participant_apply has logged why */
		return;
	if (edit->freeze_ms)
		log_info("frozen at boundary %llu, for %u ms at most",
			 (unsigned long long)edit->boundary, edit->freeze_ms);
	else
		log_info("applied an edit of %llu bytes", (unsigned long long)edit->bytes);
}

/* Adds the event of an edit or freeze that is over, unless this rank coordinates it:
 * coordinator.c tells how it ended on all ranks.
 */
static void tell(struct engine *e, const struct edit *edit)
{
	struct event_settled told = { .id = { edit->transaction[0], edit->transaction[1] },
				      .origin = edit->origin,
				      .boundary =
					      edit->state == EDIT_APPLIED ? edit->boundary : 0,
				      .status = edit->status,
				      .why = edit->why };

	if (coordinator_coordinates(e, edit->transaction) || edit->is_round || edit->round)
		return;
	if (edit->freeze_ms)
		event_log_freeze(e, &told);
	else
		event_log_edit(e, &told);
}

/* Tells the lowest live rank, which observers ask for the history of edits, and which may hold
 * no bytes of this edit.
 */
static void tell_first(struct engine *e, const struct edit *edit)
{
	struct wire_dropped dropped = { .transaction = { edit->transaction[0],
							 edit->transaction[1] },
					.origin = edit->origin };
	uint32_t first = peers_first_live(e);

	snprintf(dropped.why, sizeof(dropped.why), "%s", edit->why);
	log_warn("an edit of %llu bytes was dropped: %s", (unsigned long long)edit->bytes,
		 edit->why);
	if (first != e->rank && first != WIRE_OBSERVER)
		peers_call(e, first, WIRE_DROPPED, &dropped, NULL, 0, NULL, NULL, 0);
}

static void tell_thawed(struct engine *e, const struct participant_stay *stay)
{
	struct event_settled told = { .id = { stay->transaction[0], stay->transaction[1] },
				      .origin = stay->by,
				      .boundary = stay->boundary };

	if (!stay->thawed)
		told.why = monotonic_ms() >= stay->until_ms ? "its time was over"
							    : "who froze it was silent";
	log_info("thawed at boundary %llu%s%s", (unsigned long long)stay->boundary,
		 told.why ? ": " : "", told.why ? told.why : "");
	event_log_thaw(e, &told);
}

void edit_report_turn(struct engine *e, uint64_t now)
{
	struct participant_stay stay;
	struct edit *edit;

	assert(node_is_engine_thread(e));
	if (now > STAGED_SILENT_MS)
		participant_expire(&e->participant, now - STAGED_SILENT_MS);
	while ((edit = participant_take_over(&e->participant))) {
		if (edit->state == EDIT_APPLIED)
			report_applied(e, edit);
		else if (!edit->order && edit->why && !edit->round)
			tell_first(e, edit);
		tell(e, edit);
		participant_free_edit(&e->participant, edit);
	}
	if (participant_take_thawed(&e->participant, &stay))
		tell_thawed(e, &stay);
}

void edit_report_gone(struct engine *e, uint32_t peer)
{
	participant_lose_writer(&e->participant, peer);
}

void edit_report_dropped(struct engine *e, const struct wire_dropped *dropped)
{
	struct event_settled told = { .id = { dropped->transaction[0],
					      dropped->transaction[1] },
				      .origin = dropped->origin,
				      .status = -EIO,
				      .why = dropped->why };

	if (wire_text_ok(dropped->why, sizeof(dropped->why)) &&
	    participant_forbid(&e->participant, dropped->transaction))
		event_log_edit(e, &told);
}
