/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/condition.h"
#include "engine/catalog/lease.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const names[WIRE_QUANTITIES] = {
	[WIRE_NAN] = "nan", [WIRE_INF] = "inf", [WIRE_NORM] = "norm", [WIRE_ABSMAX] = "absmax"
};

static const char *skip_blanks(const char *at)
{
	return at + strspn(at, " \t");
}

/* Copies [from, to) without the blanks around it.
 * -EINVAL: nothing is left.
 * -ENAMETOOLONG
 */
static int copy_word(char *out, size_t room, const char *from, const char *to)
{
	from = skip_blanks(from);
	while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
		to--;
	if (to <= from)
		return -EINVAL;
	if ((size_t)(to - from) >= room)
		return -ENAMETOOLONG;
	memcpy(out, from, (size_t)(to - from));
	return 0;
}

static const char *parse_quantity(const char *at, uint32_t *quantity)
{
	size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz");

	for (*quantity = 0; *quantity < WIRE_QUANTITIES; ++*quantity)
		if (strlen(names[*quantity]) == length && !memcmp(names[*quantity], at, length))
			return skip_blanks(at + length);
	return NULL;
}

/* Returns what follows the number; NULL: there is no such number. */
static const char *parse_above(const char *at, uint64_t *bits)
{
	char *end;
	double above;

	at = skip_blanks(at);
	above = strtod(at, &end);
	if (end == at || !isfinite(above) || signbit(above) ||
	    (*end && *end != ' ' && *end != '\t'))
		return NULL;
	memcpy(bits, &above, sizeof(above));
	return skip_blanks(end);
}

static int parse_bound(const char *at, uint32_t *ms)
{
	unsigned seconds = CONDITION_FREEZE_S;
	char rest;

	if (*at && sscanf(at, "for %6u %c", &seconds, &rest) != 1)
		return -EINVAL;
	if (!seconds || seconds > LEASE_MAX_MS / 1000)
		return -EINVAL;
	*ms = seconds * 1000;
	return 0;
}

int condition_parse(const char *text, struct wire_condition *out, uint32_t *ms)
{
	struct wire_condition c = { .pattern = "*" };
	/* names of parameters may have brackets: the last one ends the pattern */
	const char *at, *comma, *close = strrchr(text, ')');
	int rc = 0;

	at = close ? parse_quantity(skip_blanks(text), &c.quantity) : NULL;
	if (!at || *at != '(' || at > close)
		return -EINVAL;
	comma = memchr(at, ',', (size_t)(close - at));
	rc = copy_word(c.key, sizeof(c.key), at + 1, comma ? comma : close);
	if (!rc && comma) {
		memset(c.pattern, 0, sizeof(c.pattern));
		rc = copy_word(c.pattern, sizeof(c.pattern), comma + 1, close);
	}
	if (rc)
		return rc;
	at = skip_blanks(close + 1);
	if (*at != '>')
		return -EINVAL;
	at = parse_above(at + 1, &c.above);
	if (!at || !condition_is_valid(&c) || parse_bound(at, ms))
		return -EINVAL;
	*out = c;
	return 0;
}

void condition_print(const struct wire_condition *c, char text[CONDITION_TEXT_MAX])
{
	bool all = !strcmp(c->pattern, "*");
	double above = condition_above(c);
	char number[32];

	snprintf(number, sizeof(number), "%.15g", above);
	if (strtod(number, NULL) != above)
		snprintf(number, sizeof(number), "%.17g", above);
	snprintf(text, CONDITION_TEXT_MAX, "%s(%s%s%s) > %s", names[c->quantity], c->key,
		 all ? "" : ", ", all ? "" : c->pattern, number);
}

static bool is_plain(const char *text, size_t size)
{
	if (!*text || !wire_text_ok(text, size))
		return false;
	for (; *text; text++)
		if (iscntrl((unsigned char)*text))
			return false;
	return true;
}

bool condition_is_valid(const struct wire_condition *c)
{
	double above = condition_above(c);

	return c->quantity < WIRE_QUANTITIES && isfinite(above) && !signbit(above) &&
	       is_plain(c->key, sizeof(c->key)) && is_plain(c->pattern, sizeof(c->pattern));
}

const char *condition_why_not(int status)
{
	static_assert(WIRE_FOUND_MAX == 32768, "as the words have it");
	switch (status) {
	case -ENOENT:
		return "no parameter of that name has such a state";
	case -E2BIG:
		return "it is above 0 in more than 32768 parameters: watch fewer, by a "
		       "pattern such as layers.0.*";
	case -EOPNOTSUPP:
		return "complex numbers have no statistics: leave them out, by a pattern";
	case -EBUSY:
		return "another mount watches the job";
	default:
		return strerror(-status);
	}
}

bool condition_names(const struct wire_condition *c, const char *param)
{
	return !fnmatch(c->pattern, param, 0);
}
