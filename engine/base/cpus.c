/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/cpus.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int refuse(const char *text, const char *what, char *why, size_t whysize)
{
	snprintf(why, whysize, "%.80s: %s", text, what);
	return -EINVAL;
}

/* Reads a number, and moves *text behind it.  false: there is no number, or it is not below
 * `below`.
 */
static bool take_number(const char **text, unsigned below, unsigned *number)
{
	size_t digits = strspn(*text, "0123456789");

	/* atoi must not overflow; 8 digits are above any limit */
	*number = digits && digits < 8 ? (unsigned)atoi(*text) : below;
	*text += digits;
	return *number < below;
}

bool cpus_range(const char **text, unsigned below, unsigned *first, unsigned *last)
{
	if (!take_number(text, below, first))
		return false;
	*last = *first;
	if (**text == '-') {
		++*text;
		if (!take_number(text, below, last))
			return false;
	}
	return !**text || **text == ',';
}

int cpus_parse(struct cpus *c, const char *text, char *why, size_t whysize)
{
	unsigned first, last, least = 0; /* least: the least number that may come next */
	struct cpus out = { { 0 } };
	const char *at = text;

	do {
		if (!cpus_range(&at, CPUS_MAX, &first, &last))
			return refuse(text, "not a list of numbers such as 0,2-4,6", why,
				      whysize);
		if (last < first)
			return refuse(text, "a range ends before it begins", why, whysize);
		if (first < least)
			return refuse(text, "numbers must ascend, and be there once", why,
				      whysize);
		for (unsigned i = first; i <= last; i++)
			cpus_add(&out, i);
		least = last + 1;
	} while (*at++);
	*c = out;
	return 0;
}

const char *cpus_text(const struct cpus *c, char *text, size_t size)
{
	size_t n = 0;

	*text = '\0';
	for (unsigned i = cpus_next(c, 0), end; i < CPUS_MAX; i = cpus_next(c, end)) {
		char part[32];

		for (end = i + 1; end < CPUS_MAX && cpus_has(c, end);)
			end++;
		snprintf(part, sizeof(part), end > i + 1 ? "%s%u-%u" : "%s%u", n ? "," : "", i,
			 end - 1);
		if (n + strlen(part) >= size)
			break;
		strcpy(text + n, part);
		n += strlen(part);
	}
	return text;
}

void cpus_add(struct cpus *c, unsigned number)
{
	c->word[number / 64] |= UINT64_C(1) << number % 64;
}

bool cpus_has(const struct cpus *c, unsigned number)
{
	return c->word[number / 64] >> number % 64 & 1;
}

unsigned cpus_next(const struct cpus *c, unsigned from)
{
	while (from < CPUS_MAX && !cpus_has(c, from))
		from++;
	return from;
}

bool cpus_are_equal(const struct cpus *a, const struct cpus *b)
{
	return !memcmp(a, b, sizeof(*a));
}

bool cpus_are_within(const struct cpus *a, const struct cpus *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(a->word); i++)
		if (a->word[i] & ~b->word[i])
			return false;
	return true;
}
