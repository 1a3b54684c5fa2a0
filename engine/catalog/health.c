/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/health.h"

#include "engine/base/text.h"
#include "engine/base/vec.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { HEALTH_COLUMNS_MAX = 32 };

static const char *const state_names[] = {
	[ENGINE_RANK_UNKNOWN] = "unknown",
	[ENGINE_RANK_ALIVE] = "alive",
	[ENGINE_RANK_LOST] = "lost",
	[ENGINE_RANK_LEFT] = "left",
};

/* The columns, in their order, and the field of struct engine_rank that each shows.  A NUMBER
 * has 64 bits.  LINE is the last: it has the rest of a row.
 */
static const struct column {
	const char *name;
	enum { RANK, STATE, NUMBER, FLAG, CONSTANT, TEXT, LINE } kind;
	size_t offset, size;
} columns[] = {
#define COLUMN(name, kind, field)                                                              \
	{                                                                                      \
		name, kind, offsetof(struct engine_rank, field),                               \
			sizeof(((struct engine_rank *)NULL)->field)                            \
	}
	{ "rank", RANK, 0, 0 },
	COLUMN("state", STATE, state),
	COLUMN("step", NUMBER, step),
	COLUMN("generation", NUMBER, generation),
	COLUMN("boundary", NUMBER, boundary),
	COLUMN("boundary_ms", NUMBER, boundary_ms),
	COLUMN("phase", CONSTANT, phase),
	COLUMN("way", CONSTANT, way),
	COLUMN("bytes", NUMBER, bytes_host), /* fragctl adds those of the other tiers */
	COLUMN("swap_bytes", NUMBER, bytes_swap),
	COLUMN("device_bytes", NUMBER, bytes_device),
	COLUMN("swap_errors", NUMBER, swap_errors),
	COLUMN("swap_damaged", NUMBER, swap_damaged),
	COLUMN("fabric", FLAG, fabric),
	COLUMN("since_ms", NUMBER, since_ms),
	COLUMN("silent_ms", NUMBER, silent_ms),
	COLUMN("pid", NUMBER, pid),
	COLUMN("host", TEXT, host),
	COLUMN("address", TEXT, address),
	COLUMN("why", LINE, why),
#undef COLUMN
};

/* ---- writing ---- */

/* A word has no spaces; the rest of a line may. */
static void put_text(FILE *out, const char *text, bool line)
{
	if (!text || !*text)
		text = "-";
	for (; *text; text++) {
		bool space =
			line ? *text == '\n' || *text == '\r' : (unsigned char)*text <= ' ';

		fputc(!space ? *text : line ? ' ' : '_', out);
	}
}

static void put(FILE *out, const struct column *c, uint32_t rank, const struct engine_rank *r)
{
	const void *field = (const char *)r + c->offset;

	switch (c->kind) {
	case RANK:
		fprintf(out, "%" PRIu32, rank);
		break;
	case STATE:
		put_text(out, state_names[r->state], false);
		break;
	case NUMBER:
		fprintf(out, "%" PRIu64, *(const uint64_t *)field);
		break;
	case FLAG:
		fputs(*(const bool *)field ? "yes" : "no", out);
		break;
	case CONSTANT:
		put_text(out, *(const char *const *)field, false);
		break;
	case TEXT:
	case LINE:
		put_text(out, field, c->kind == LINE);
		break;
	}
}

char *health_text(const struct engine_rank *ranks, uint32_t nranks)
{
	const size_t last = ARRAY_SIZE(columns) - 1;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (size_t i = 0; i <= last; i++)
		fprintf(out, "%s%c", columns[i].name, i < last ? ' ' : '\n');
	for (uint32_t rank = 0; rank < nranks; rank++)
		for (size_t i = 0; i <= last; i++) {
			put(out, &columns[i], rank, &ranks[rank]);
			fputc(i < last ? ' ' : '\n', out);
		}
	return text_end(out, &text);
}

/* ---- reading ---- */

static const struct column *find_column(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		if (!strcmp(columns[i].name, name))
			return &columns[i];
	return NULL;
}

/* Returns the constant that equals the word; "-": there is none. */
static const char *constant(const char *word)
{
	static const char *const words[] = { "host",   "tls",  "tcp",    "zmq",    "ready",
					     "stable", "step", "frozen", "closed", "lost" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (!strcmp(word, words[i]))
			return words[i];
	}
	return "-";
}

static enum engine_rank_state state_of(const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(state_names); i++) {
		if (!strcmp(word, state_names[i]))
			return (enum engine_rank_state)i;
	}
	return ENGINE_RANK_UNKNOWN;
}

static void take_field(struct engine_rank *r, const struct column *c, const char *word)
{
	void *field = (char *)r + c->offset;

	assert(c->kind != NUMBER || c->size == sizeof(uint64_t));

	switch (c->kind) {
	case RANK: /* the number of the row is the rank */
		break;
	case STATE:
		r->state = state_of(word);
		break;
	case NUMBER:
		*(uint64_t *)field = strtoull(word, NULL, 10);
		break;
	case FLAG:
		*(bool *)field = !strcmp(word, "yes");
		break;
	case CONSTANT:
		*(const char **)field = constant(word);
		break;
	case TEXT:
	case LINE:
		snprintf(field, c->size, "%s", strcmp(word, "-") ? word : "");
		break;
	}
}

/* Cuts line into at most max words, the last of which has the rest.  Returns how many. */
static int cut(char *line, char **words, int max)
{
	int n = 0;

	while (n < max && *(line += strspn(line, " ")) != '\0') {
		words[n++] = line;
		if (n == max)
			break;
		line += strcspn(line, " ");
		if (*line)
			*line++ = '\0';
	}
	return n;
}

/* A later version's columns that we do not know are skipped. */
static int parse_row(char *line, const struct column *const *named, int n, struct vec *ranks)
{
	char *words[HEALTH_COLUMNS_MAX];
	struct engine_rank *r;

	if (cut(line, words, n) < n)
		return -EINVAL;
	r = vec_add(ranks, sizeof(*r));
	if (!r)
		return -ENOMEM;
	*r = (struct engine_rank){ .phase = "-", .way = "-" };
	for (int i = 0; i < n; i++)
		if (named[i])
			take_field(r, named[i], words[i]);
	return 0;
}

static int parse(char *text, struct vec *ranks)
{
	const struct column *named[HEALTH_COLUMNS_MAX];
	char *names[HEALTH_COLUMNS_MAX];
	char *save, *line = strtok_r(text, "\n", &save);
	int n, e = 0;

	if (!line || strncmp(line, "rank ", 5))
		return -EINVAL;
	n = cut(line, names, HEALTH_COLUMNS_MAX);
	for (int i = 0; i < n; i++)
		named[i] = find_column(names[i]);
	while (!e && (line = strtok_r(NULL, "\n", &save)))
		e = parse_row(line, named, n, ranks);
	return e;
}

int health_parse(const char *text, struct engine_rank **ranks, uint32_t *nranks)
{
	char *copy CLEANUP(free) = strdup(text);
	struct vec list = { 0 };
	int e = copy ? parse(copy, &list) : -ENOMEM;

	if (e) {
		free(list.items);
		return e;
	}
	*ranks = list.items;
	*nranks = list.count;
	return 0;
}
