/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/unit/checkpoint/formats/mounted.h"

#include "engine/checkpoint/checkpoint.h"
#include "tests/find-param.h"
#include "tests/unit/waiter.h"

#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STATES_MAX = 64 };

int mounted_open(struct mounted *m, const char *path, const char *source)
{
	const struct engine_options options = { .source = path, .format = source };
	int rc;

	*m = (struct mounted){ 0 };
	rc = checkpoint_open(&m->engine, &options, m->why, sizeof(m->why));
	ck_assert_msg(!rc == !*m->why && !strchr(m->why, '\n'), "%s: %s", path, m->why);
	return rc;
}

void mounted_close(struct mounted *m)
{
	if (m->engine)
		engine_close(m->engine);
	m->engine = NULL;
}

/* ---- reading ---- */

uint8_t *mounted_read(struct mounted *m, const char *name, const char *key, int rank,
		      uint64_t *size)
{
	struct engine_address a = { .kind = rank < 0 ? ENGINE_PARAM : ENGINE_RANK_PARAM,
				    .rank = rank < 0 ? 0 : (uint32_t)rank };

	snprintf(a.key, sizeof(a.key), "%s", key);
	return find_param(m->engine, name, "", &a.param) ? NULL : mounted_read_at(m, &a, size);
}

double mounted_hyper(struct mounted *m, uint32_t group, const char *key)
{
	struct engine_address a = { .kind = ENGINE_HYPER, .group = group };
	uint64_t size;
	double value = NAN;

	snprintf(a.key, sizeof(a.key), "%s", key);
	CLEANUP(free) uint8_t *bytes = mounted_read_at(m, &a, &size);
	if (bytes && size == sizeof(value))
		memcpy(&value, bytes, sizeof(value));
	return value;
}

uint8_t *mounted_read_at(struct mounted *m, const struct engine_address *a, uint64_t *size)
{
	struct engine_file *file;
	uint8_t *out;

	if (engine_file_open(m->engine, a, &file, size))
		return NULL;
	out = malloc(*size + 1);
	for (uint64_t at = 0, n; at < *size; at += n) {
		n = u64_min(*size - at, ENGINE_READ_MAX);
		ck_assert_int_eq(waiter_read(m->engine, file, at, n, out + at), (int64_t)n);
	}
	engine_file_close(file);
	return out;
}

/* ---- what is expected ---- */

struct checking {
	struct mounted *m;
	char *source;
	uint32_t params, buffers;
};

static void check_tensor(struct checking *c, bool buffer, const char *name, const char *shape,
			 int nstates)
{
	struct engine_state states[STATES_MAX];
	struct engine_param x;
	char is[400] = "", *out = is;
	uint32_t number;

	ck_assert_msg(!find_param(c->m->engine, name, "", &number), "no %s", name);
	ck_assert(engine_param(c->m->engine, number, &x));
	ck_assert_msg(buffer == (number >= engine_nparams(c->m->engine)), "%s", name);
	for (uint32_t d = 0; d < x.ndim; d++)
		out += sprintf(out, d ? ",%" PRIu64 : "%" PRIu64, x.shape[d]);
	ck_assert_msg(!strcmp(shape, *is ? is : "-"), "%s is %s, not %s", name, is, shape);
	ck_assert_msg(engine_states(c->m->engine, number, states, STATES_MAX) == nstates,
		      "%s has %d states, not %d", name,
		      engine_states(c->m->engine, number, states, STATES_MAX), nstates);
	*(buffer ? &c->buffers : &c->params) += 1;
}

static void check_state(struct checking *c, const char *name, const char *key, int rank,
			const char *hex)
{
	uint64_t size = 0;
	uint8_t *bytes = mounted_read(c->m, name, key, rank, &size);
	char *is = malloc(2 * size + 2), *out = is;

	ck_assert_msg(bytes, "there is no %s of %s", key, name);
	for (uint64_t i = 0; i < size; i++)
		out += sprintf(out, "%02x", bytes[i]);
	if (!size)
		strcpy(is, "-");
	ck_assert_msg(!strcmp(is, hex), "%s of %s, rank %d, is\n%s, not\n%s", key, name, rank,
		      is, hex);
	free(is);
	free(bytes);
}

static void check_source(struct checking *c, const char *start, const char *text)
{
	char line[2000];
	const char *at;

	snprintf(line, sizeof(line), "%s%s", start, text);
	at = strstr(c->source, line);
	ck_assert_msg(at && (at == c->source || at[-1] == '\n'), "\"%s\" is not said in\n%s",
		      line, c->source);
}

static void check_step(struct checking *c, const char *step)
{
	struct engine_job job;

	engine_job(c->m->engine, &job);
	ck_assert_msg(job.has_step && job.step == strtoull(step, NULL, 10), "step %" PRIu64,
		      job.step);
}

static void check_line(struct checking *c, char *line)
{
	char *rest = line, *kind = strsep(&rest, " "), *word[4] = { 0 };

	if (!strcmp(kind, "source")) {
		check_source(c, "", rest);
		return;
	}
	for (int i = 0; i < 4 && rest; i++)
		word[i] = strsep(&rest, " ");
	if (!strcmp(kind, "param") || !strcmp(kind, "buffer"))
		check_tensor(c, *kind == 'b', word[0], word[1], atoi(word[2]));
	else if (!strcmp(kind, "state"))
		check_state(c, word[0], word[1], -1, word[2]);
	else if (!strcmp(kind, "rank"))
		check_state(c, word[1], word[2], atoi(word[0]), word[3]);
	else if (!strcmp(kind, "skipped"))
		check_source(c, "skipped ", word[0]);
	else if (!strcmp(kind, "step"))
		check_step(c, word[0]);
	else
		ck_abort_msg("a line of %s", kind);
}

int mounted_check(struct mounted *m, const char *expect)
{
	struct checking c = { .m = m, .source = engine_text(m->engine, "source") };
	FILE *f = fopen(expect, "re");
	char *line = NULL;
	size_t room = 0;
	int n = 0;

	ck_assert_msg(f && c.source, "%s", expect);
	for (; getline(&line, &room, f) > 0; n++) {
		line[strcspn(line, "\n")] = '\0';
		if (*line != '#')
			check_line(&c, line);
	}
	fclose(f);
	free(line);
	free(c.source);
	ck_assert_uint_eq(c.params, engine_nparams(m->engine));
	ck_assert_uint_eq(c.buffers, engine_nbuffers(m->engine));
	return n;
}
