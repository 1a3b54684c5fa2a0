/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/serve/serve-texts.h"

#include "engine/base/log.h"
#include "engine/base/phase.h"
#include "engine/base/text.h"
#include "engine/catalog/leaves.h"
#include "engine/node/comms.h"
#include "engine/rank/arena-memory.h"
#include "engine/rank/registry-place.h"
#include "engine/rank/swap-text.h"
#include "engine/rounds/landing.h"
#include "engine/serve/readers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Puts a text that a module has made, and frees it.  -ENOMEM: text is NULL. */
static int put_made(FILE *out, char *text)
{
	if (!text)
		return -ENOMEM;
	fputs(text, out);
	free(text);
	return 0;
}

static int put_log(struct engine *e, FILE *out)
{
	return put_made(out, log_text());
}

static int put_comms(struct engine *e, FILE *out)
{
	return put_made(out, comms_text(e->comms));
}

static int put_swap(struct engine *e, FILE *out)
{
	return put_made(out, e->registry.swapper ? swap_text_states(&e->registry, e->own)
						 : strdup("none\n"));
}

static int put_pinned(struct engine *e, FILE *out)
{
	return put_made(out, e->registry.swapper ? swap_text_pinned(&e->registry)
						 : strdup("none\n"));
}

/* Escapes bytes that would end a field or a line, and @ and /, which begin what follows a name.
 */
static void put_escaped(FILE *out, const char *text)
{
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c <= ' ' || *c == '%' || *c == '@' || *c == '/' ||
		    *c == 127)
			fprintf(out, "%%%02X", (unsigned char)*c);
		else
			putc(*c, out);
}

/* Puts the name of the parameter's folder in a mount. */
static void put_name(void *arg, FILE *out, uint32_t param)
{
	const struct catalog *own = arg;
	const char *coordinate = catalog_coordinate(own, param);

	put_escaped(out, catalog_name(own, param));
	if (!*coordinate)
		return;
	putc('@', out);
	put_escaped(out, coordinate);
}

static int put_arena(struct engine *e, FILE *out)
{
	if (e->arena)
		arena_memory_tell(e->arena, put_name, e->own, out);
	else
		fputs("none\n", out);
	return 0;
}

static int put_nccl(struct engine *e, FILE *out)
{
	return put_made(out, landing_text(e));
}

static int put_timers(struct engine *e, FILE *out)
{
	phase_put_table(out);
	return 0;
}

/* For a mount's .frag/metrics. */
static int put_phases(struct engine *e, FILE *out)
{
	char labels[32];

	snprintf(labels, sizeof(labels), "rank=\"%u\",", e->rank);
	phase_put_histograms(out, "fragfs_rank_phase", labels);
	phase_put_last_step(out, "fragfs_rank_phase", labels);
	return 0;
}

static int put_leaves(struct engine *e, FILE *out)
{
	if (e->leaves)
		leaves_print(e->leaves, out);
	return 0;
}

static int put_readers(struct engine *e, FILE *out)
{
	readers_print(e, out);
	return 0;
}

static int put_place(struct engine *e, FILE *out)
{
	registry_place_print(&e->registry, out);
	return 0;
}

static const struct {
	const char *what;
	int (*put)(struct engine *e, FILE *out);
} texts[] = {
	{ "swap", put_swap },     { "pinned", put_pinned },   { "arena", put_arena },
	{ "nccl", put_nccl },     { "log", put_log },         { "comms", put_comms },
	{ "timers", put_timers }, { "phases", put_phases },   { "place", put_place },
	{ "leaves", put_leaves }, { "readers", put_readers },
};

/* -EINVAL: there is no such text.  -ENOMEM. */
static int make_text(struct engine *e, const char *what, char **text)
{
	size_t size, i = 0;
	FILE *out;
	int rc;

	while (i < ARRAY_SIZE(texts) && strcmp(what, texts[i].what) != 0)
		i++;
	if (i == ARRAY_SIZE(texts))
		return -EINVAL;
	out = open_memstream(text, &size);
	if (!out)
		return -ENOMEM;
	rc = texts[i].put(e, out);
	return text_end(out, text) ? rc : -ENOMEM;
}

void serve_texts_answer(struct engine *e, uint32_t peer, uint64_t request, const void *body)
{
	struct wire_rank_query query;
	struct wire_rank_text told = { 0 };
	CLEANUP(free) char *text = NULL;
	int rc = -EINVAL;

	assert(node_is_engine_thread(e));
	memcpy(&query, body, sizeof(query));
	if (wire_text_ok(query.what, sizeof(query.what)))
		rc = make_text(e, query.what, &text);
	if (rc) {
		node_ack(e, peer, request, rc);
		return;
	}
	told.size = (uint32_t)swap_text_lines(text, WIRE_CHUNK);
	node_send(e, peer, WIRE_RANK_TEXT, request, &told, text, told.size);
}
