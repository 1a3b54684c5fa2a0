/* SPDX-License-Identifier: Apache-2.0 */
#include "loader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Numbers the different tokens of the file 0, 1, 2 ... in rising order. */
static void number_tokens(struct loader *l)
{
	bool used[256] = { false };

	for (uint64_t i = 0; i < l->ntokens; i++)
		used[l->tokens[i]] = true;
	for (int c = 0; c < 256; c++)
		if (used[c])
			l->symbol[c] = (uint8_t)l->vocab++;
}

static int map_file(struct loader *l, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
	struct stat st = { .st_size = 0 };
	void *mapped = MAP_FAILED;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		rc = -errno;
	else if (st.st_size <= MODEL_CONTEXT)
		rc = -EINVAL;
	else if ((mapped = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0)) ==
		 MAP_FAILED)
		rc = -errno;
	close(fd);
	if (!rc)
		*l = (struct loader){ .tokens = mapped,
				      .ntokens = (uint64_t)st.st_size,
				      .nsamples = (uint64_t)st.st_size - MODEL_CONTEXT };
	return rc;
}

int loader_open(struct loader *l, const char *path)
{
	int rc = map_file(l, path);

	if (rc)
		return rc;
	number_tokens(l);
	if (l->vocab >= 2)
		return 0;
	loader_close(l);
	return -EINVAL;
}

void loader_close(struct loader *l)
{
	munmap((void *)(uintptr_t)l->tokens, (size_t)l->ntokens);
	l->tokens = NULL;
}

/* Returns the i-th number of a permutation of 0 .. n - 1, without a table: a Feistel network
 * permutes the numbers of 2 * bits bits, and is applied again until the number is below n.
 */
static uint64_t permuted(uint64_t seed, uint64_t i, uint64_t n)
{
	unsigned bits = 1;
	uint64_t mask;

	while (bits < 32 && (n - 1) >> (2 * bits))
		bits++;
	mask = (1ULL << bits) - 1;
	do {
		uint64_t left = i >> bits, right = i & mask;

		for (uint64_t round = 0; round < 4; round++) {
			uint64_t next = left ^ (mix(seed, round, right) & mask);

			left = right;
			right = next;
		}
		i = left << bits | right;
	} while (i >= n);
	return i;
}

void loader_sample(const struct loader *l, uint64_t step, uint64_t index,
		   uint8_t symbols[MODEL_CONTEXT + 1])
{
	uint64_t number = (step * l->world + l->rank) * l->batch + index;
	uint64_t epoch = number / l->nsamples;
	uint64_t at = permuted(mix(l->seed, epoch, 0), number % l->nsamples, l->nsamples);

	for (int i = 0; i <= MODEL_CONTEXT; i++)
		symbols[i] = l->symbol[l->tokens[at + (uint64_t)i]];
}
