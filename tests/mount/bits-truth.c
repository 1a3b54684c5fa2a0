/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/mount/bits.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

const char *const bits_keys[BITS_KEYS_MAX + 1] = { "fp32", "grad", "exp_avg", "bf16" };

static const struct bits_param small[] = {
	{ "one", 1, { 1 } },      { "odd.w", 2, { 61, 37 } },         { "scalar", 0, { 0 } },
	{ "up.bias", 1, { 13 } }, { "cube", 3, { 5, 3, 7 } },         { "a/b", 2, { 3, 1009 } },
	{ "two", 2, { 2, 1 } },   { "embed.weight", 2, { 211, 64 } },
};
static const struct bits_param some[] = {
	{ "w", 2, { 1021, 1031 } },
	{ "one", 1, { 1 } },
	{ "v", 2, { 7, 100003 } },
};
static const struct bits_param large[] = { { "w", 2, { 8191, 8209 } }, { "one", 1, { 1 } } };
static const struct bits_param even[] = { { "w", 2, { 300, 1001 } }, { "v", 1, { 701 } } };

static const struct bits_param frozen[] = {
	{ "w", 2, { 61, 37 } },
	{ "b", 1, { 13 } },
	{ "tokens", 2, { 211, 64 } },
	{ "scale", 0, { 0 } },
};

static const struct {
	const char *name;
	const struct bits_param *params;
	uint32_t n, nkeys, nfrozen;
} sets[] = {
	{ "small", small, ARRAY_SIZE(small), 3, 0 },
	{ "some", some, ARRAY_SIZE(some), 3, 0 },
	{ "large", large, ARRAY_SIZE(large), 1, 0 },
	{ "even", even, ARRAY_SIZE(even), 3, 0 },
	{ "frozen", frozen, ARRAY_SIZE(frozen), 3, 2 },
};

void bits_fail(const char *why)
{
	fprintf(stderr, "bits-job: %s\n", why);
	exit(1);
}

uint64_t bits_numel(const struct bits_param *p)
{
	uint64_t n = 1;

	for (uint32_t i = 0; i < p->ndim; i++)
		n *= p->shape[i];
	return n;
}

uint32_t bits_cuts(const struct bits_job *job, uint32_t param, struct frag_cut cuts[2])
{
	uint32_t ndim = job->params[param].ndim;

	if (!job->cuts || ndim < 2)
		return 0;
	if (job->world % 2 || job->world == 2) {
		cuts[0] = (struct frag_cut){ ndim - 1, job->world };
		return 1;
	}
	cuts[0] = (struct frag_cut){ ndim - 1, 2 };
	cuts[1] = (struct frag_cut){ 0, job->world / 2 };
	return 2;
}

/* As torch.chunk divides. */
struct bits_box bits_box(const struct bits_job *job, uint32_t param, uint32_t rank)
{
	const struct bits_param *p = &job->params[param];
	struct bits_box box = { 0 };
	struct frag_cut cuts[2];
	uint32_t n = bits_cuts(job, param, cuts);

	for (uint32_t d = 0; d < p->ndim; d++)
		box.to[d] = p->shape[d];
	for (uint32_t i = 0; i < n; i++) {
		uint64_t *from = &box.from[cuts[i].dim], *to = &box.to[cuts[i].dim];
		uint64_t chunk = u64_div_ceil(*to - *from, cuts[i].parts);
		uint32_t part = i + 1 < n ? rank / cuts[1].parts : rank % cuts[i].parts;

		*from = u64_min(*from + part * chunk, *to);
		*to = u64_min(*from + chunk, *to);
	}
	return box;
}

uint64_t bits_box_numel(const struct bits_job *job, uint32_t param, const struct bits_box *box)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < job->params[param].ndim; d++)
		n *= box->to[d] - box->from[d];
	return n;
}

uint64_t bits_box_at(const struct bits_job *job, uint32_t param, const struct bits_box *box,
		     uint64_t i)
{
	const struct bits_param *p = &job->params[param];
	uint64_t at = 0, stride = 1;

	for (uint32_t d = p->ndim; d-- > 0;) {
		uint64_t extent = box->to[d] - box->from[d];

		at += (box->from[d] + i % extent) * stride;
		stride *= p->shape[d];
		i /= extent;
	}
	return at;
}

uint64_t bits_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Nearest, ties to even; a NaN stays one. */
uint16_t bits_bf16(uint32_t f32)
{
	uint32_t below = f32 & 0xffff, high = f32 >> 16;

	if ((f32 & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(high | 0x40);
	if (below > 0x8000 || (below == 0x8000 && high & 1))
		high++;
	return (uint16_t)high;
}

/* ---- what ought to be ---- */

static uint32_t pattern(uint64_t i, uint64_t chance)
{
	switch (i % 13) {
	case 3:
		return 0x80000000; /* -0.0 */
	case 5:
		return 0x7fa12345; /* signalling NaN */
	case 7:
		return 0xff812345;
	case 9:
		return 0xff800000;
	default:
		return (uint32_t)chance;
	}
}

static void fill(const struct bits_job *job, uint32_t param, uint32_t key)
{
	uint64_t n = bits_numel(&job->params[param]);
	float value = (float)(param + 1);
	uint32_t bits;

	for (uint64_t i = 0; i < n; i++) {
		memcpy(&bits, &value, sizeof(bits));
		if (!job->even)
			bits = pattern(i + param, bits_mix((uint64_t)param << 56 |
							   (uint64_t)key << 48 | i));
		if (key < BITS_LP)
			((uint32_t *)job->truth[param][key])[i] = bits;
		else if (job->even)
			((uint16_t *)job->truth[param][key])[i] = bits_bf16(bits);
		else
			((uint16_t *)job->truth[param][key])[i] =
				(uint16_t)(i % 13 == 5 ? 0x7f81 : bits >> 16);
	}
}

static void *shared(uint64_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		bits_fail("no memory");
	return at;
}

static void take_set(struct bits_job *job, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		if (strcmp(sets[i].name, name))
			continue;
		job->params = sets[i].params;
		job->nparams = sets[i].n;
		job->nkeys = sets[i].nkeys;
		job->nfrozen = sets[i].nfrozen;
	}
	if (!job->params)
		bits_fail("no such set");
	job->even = !strcmp(name, "even");
}

void bits_new(struct bits_job *job, const char *layout, uint32_t world, const char *set)
{
	job->cuts = !strcmp(layout, "cuts");
	job->stage = job->cuts || !strcmp(layout, "fsdp2") ? 4 : atoi(layout);
	job->world = world;
	if (!world || world > BITS_WORLD_MAX)
		bits_fail("so many ranks");
	take_set(job, set);
	job->shared = shared(sizeof(*job->shared));
	for (uint32_t p = 0; p < job->nparams; p++)
		for (uint32_t k = 0; k <= BITS_LP; k++) {
			if (k >= job->nkeys && k < BITS_LP)
				continue;
			job->truth[p][k] =
				shared(bits_numel(&job->params[p]) * bits_element(k));
			fill(job, p, k);
		}
}

/* ---- the launcher's commands ---- */

static bool find(const struct bits_job *job, const char *param, const char *key, uint32_t *p,
		 uint32_t *k, char *answer)
{
	for (*p = 0; *p < job->nparams && strcmp(job->params[*p].name, param);)
		++*p;
	for (*k = 0; *k <= BITS_LP && strcmp(bits_keys[*k], key);)
		++*k;
	if (*p < job->nparams && *k <= BITS_LP && job->truth[*p][*k]) {
		strcpy(answer, "ok");
		return true;
	}
	snprintf(answer, BITS_LINE, "no %.100s %.30s", param, key);
	return false;
}

void bits_expect(struct bits_job *job, const char *param, const char *key, const char *file,
		 char *answer)
{
	uint32_t p, k;
	FILE *out;

	if (!find(job, param, key, &p, &k, answer))
		return;
	out = fopen(file, "we");
	if (!out ||
	    fwrite(job->truth[p][k], bits_element(k), bits_numel(&job->params[p]), out) !=
		    bits_numel(&job->params[p]) ||
	    fclose(out))
		snprintf(answer, BITS_LINE, "cannot write %.200s", file);
}

static void follow(struct bits_job *job, uint32_t param, uint64_t offset, uint64_t size)
{
	const uint32_t *fp32 = (const uint32_t *)job->truth[param][0];
	uint16_t *lp = (uint16_t *)job->truth[param][BITS_LP];

	for (uint64_t i = offset / 4; i < u64_div_ceil(offset + size, 4); i++)
		lp[i] = bits_bf16(fp32[i]);
}

void bits_change(struct bits_job *job, const char *param, const char *key, uint64_t offset,
		 const char *file, char *answer)
{
	CLEANUP(close) int fd = open(file, O_RDONLY | O_CLOEXEC);
	uint32_t p, k;
	struct stat st;

	if (!find(job, param, key, &p, &k, answer))
		return;
	if (fd < 0 || fstat(fd, &st) ||
	    offset + (uint64_t)st.st_size > bits_numel(&job->params[p]) * bits_element(k) ||
	    read(fd, job->truth[p][k] + offset, (size_t)st.st_size) != st.st_size)
		snprintf(answer, BITS_LINE, "cannot take %.200s", file);
	else if (!k)
		follow(job, p, offset, (uint64_t)st.st_size);
}

void bits_ranges(struct bits_job *job, const char *file, const char *param, const char *key,
		 uint64_t n, uint64_t seed, char *answer)
{
	CLEANUP(close) int fd = open(file, O_RDONLY | O_CLOEXEC);
	CLEANUP(free) uint8_t *got = malloc(3 << 20);
	uint64_t bytes, at, size;
	uint32_t p, k;

	if (!find(job, param, key, &p, &k, answer))
		return;
	bytes = bits_numel(&job->params[p]) * bits_element(k);
	for (uint64_t i = 0; i < n; i++) {
		at = bits_mix(seed++) % bytes;
		size = u64_min(bits_mix(seed++) % (i % 4 ? 5000 : 3 << 20), bytes - at);
		if (fd >= 0 && got && pread(fd, got, size, (off_t)at) == (ssize_t)size &&
		    !memcmp(got, job->truth[p][k] + at, size))
			continue;
		snprintf(answer, BITS_LINE, "%.150s: wrong in %llu bytes at %llu", file,
			 (unsigned long long)size, (unsigned long long)at);
		return;
	}
}
