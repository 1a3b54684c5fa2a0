/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/health.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HEALTH_COLUMNS_MAX = 32 };

static const char *const state_names[] = {
	[ENGINE_RANK_UNKNOWN] = "unknown",
	[ENGINE_RANK_ALIVE] = "alive",
	[ENGINE_RANK_LOST] = "lost",
	[ENGINE_RANK_LEFT] = "left",
};

static const char header[] =
	"rank state step generation boundary boundary_ms phase way bytes swap_bytes "
	"device_bytes swap_errors swap_damaged fabric since_ms pid "
	"host address why\n";

/* ---- writing ---- */

static void put_word(FILE *out, const char *word, char after)
{
	if (!word || !*word)
		word = "-";
	for (; *word; word++)
		fputc((unsigned char)*word > ' ' || after == '\n' ? *word : '_', out);
	fputc(after, out);
}

static void put_why(FILE *out, const char *why)
{
	char line[sizeof(((struct engine_rank *)NULL)->why)];
	char *end;

	snprintf(line, sizeof(line), "%s", why);
	while ((end = strpbrk(line, "\n\r")))
		*end = ' ';
	put_word(out, line, '\n');
}

static void put_rank(FILE *out, uint32_t rank, const struct engine_rank *r)
{
	fprintf(out, "%" PRIu32 " ", rank);
	put_word(out, state_names[r->state], ' ');
	fprintf(out, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " ", r->step, r->generation,
		r->boundary, r->boundary_ms);
	put_word(out, r->phase, ' ');
	put_word(out, r->way, ' ');
	fprintf(out, "%" PRIu64 " %" PRIu64 " %" PRIu64 " ", r->bytes_host, r->bytes_swap,
		r->bytes_device);
	fprintf(out, "%" PRIu64 " %" PRIu64 " %s ", r->swap_errors, r->swap_damaged,
		r->fabric ? "yes" : "no");
	fprintf(out, "%" PRIu64 " %" PRId64 " ", r->since_ms, r->pid);
	put_word(out, r->host, ' ');
	put_word(out, r->address, ' ');
	put_why(out, r->why);
}

char *health_text(const struct engine_rank *ranks, uint32_t nranks)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputs(header, out);
	for (uint32_t rank = 0; rank < nranks; rank++)
		put_rank(out, rank, &ranks[rank]);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

/* ---- reading ---- */

static const char *known(const char *word)
{
	static const char *const words[] = { "host", "zmq",    "loop",   "ready", "stable",
					     "step", "frozen", "closed", "lost" };

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

static void take_text(char *to, size_t size, const char *word)
{
	snprintf(to, size, "%s", strcmp(word, "-") ? word : "");
}

static void take_number(struct engine_rank *r, const char *column, const char *word)
{
	uint64_t n = strtoull(word, NULL, 10);

	if (!strcmp(column, "step"))
		r->step = n;
	else if (!strcmp(column, "generation"))
		r->generation = n;
	else if (!strcmp(column, "boundary"))
		r->boundary = n;
	else if (!strcmp(column, "boundary_ms"))
		r->boundary_ms = n;
	else if (!strcmp(column, "bytes"))
		r->bytes_host = n;
	else if (!strcmp(column, "swap_bytes"))
		r->bytes_swap = n;
	else if (!strcmp(column, "device_bytes"))
		r->bytes_device = n;
	else if (!strcmp(column, "swap_errors"))
		r->swap_errors = n;
	else if (!strcmp(column, "swap_damaged"))
		r->swap_damaged = n;
	else if (!strcmp(column, "since_ms"))
		r->since_ms = n;
	else if (!strcmp(column, "pid"))
		r->pid = strtoll(word, NULL, 10);
}

static void take_word(struct engine_rank *r, const char *column, const char *word)
{
	if (!strcmp(column, "state"))
		r->state = state_of(word);
	else if (!strcmp(column, "phase"))
		r->phase = known(word);
	else if (!strcmp(column, "way"))
		r->way = known(word);
	else if (!strcmp(column, "fabric"))
		r->fabric = !strcmp(word, "yes");
	else if (!strcmp(column, "host"))
		take_text(r->host, sizeof(r->host), word);
	else if (!strcmp(column, "address"))
		take_text(r->address, sizeof(r->address), word);
	else if (!strcmp(column, "why"))
		take_text(r->why, sizeof(r->why), word);
	else
		take_number(r, column, word);
}

/* Cuts line into words; the last of max has the rest. */
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

static int parse_row(char *line, char **columns, int ncolumns, struct engine_rank *r)
{
	char *words[HEALTH_COLUMNS_MAX];
	int n = cut(line, words, ncolumns);

	if (n < ncolumns)
		return -EINVAL;
	*r = (struct engine_rank){ .phase = "-", .way = "-" };
	for (int i = 0; i < n; i++)
		take_word(r, columns[i], words[i]);
	return 0;
}

static int append(struct engine_rank **ranks, uint32_t *n, const struct engine_rank *r)
{
	struct engine_rank *grown = realloc(*ranks, (*n + 1) * sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	grown[(*n)++] = *r;
	*ranks = grown;
	return 0;
}

static int parse(char *text, struct engine_rank **ranks, uint32_t *n)
{
	char *columns[HEALTH_COLUMNS_MAX];
	char *save, *line = strtok_r(text, "\n", &save);
	struct engine_rank r;
	int ncolumns, e;

	if (!line || strncmp(line, "rank ", 5))
		return -EINVAL;
	ncolumns = cut(line, columns, HEALTH_COLUMNS_MAX);
	while ((line = strtok_r(NULL, "\n", &save))) {
		e = parse_row(line, columns, ncolumns, &r);
		if (!e)
			e = append(ranks, n, &r);
		if (e)
			return e;
	}
	return 0;
}

int health_parse(const char *text, struct engine_rank **ranks, uint32_t *nranks)
{
	char *copy CLEANUP(free) = strdup(text);
	struct engine_rank *list = NULL;
	uint32_t n = 0;
	int e = copy ? parse(copy, &list, &n) : -ENOMEM;

	if (e) {
		free(list);
		return e;
	}
	*ranks = list;
	*nranks = n;
	return 0;
}
