/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "model.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct number {
	const char *name;
	size_t field;
	uint64_t usual, min, max;
	const char *help;
} numbers[] = {
#define NUMBER(name, field, ...)                                                               \
	{                                                                                      \
		name, offsetof(struct options, field), __VA_ARGS__                             \
	}
	NUMBER("stage", stage, 2, 0, 3, "ZeRO stage"),
	NUMBER("first-step", first_step, 0, 0, UINT64_MAX / 2,
	       "steps done before: the data go on there"),
	NUMBER("steps", steps, 300, 0, UINT64_MAX / 2, "number of the last step"),
	NUMBER("batch", batch, 32, 1, 1 << 20, "samples of each rank in a step"),
	NUMBER("hidden", hidden, 101, 1, MODEL_HIDDEN_MAX, "width of the hidden layers"),
	NUMBER("seed", seed, 1, 0, UINT64_MAX, "of the first weights and of the samples"),
	NUMBER("every", every, 10, 1, UINT64_MAX, "steps between two lines"),
	NUMBER("pause-ms", pause_ms, 0, 0, 3600000, "rest between steps"),
	NUMBER("device-ms", device_ms, 10000, 1, 3600000, "until a silent device is given up"),
};

enum { NNUMBERS = sizeof(numbers) / sizeof(numbers[0]) };
enum {
	OPTION_TEXT = NNUMBERS,
	OPTION_SWAP,
	OPTION_SWAP_PARAMS,
	OPTION_ARENA,
	OPTION_DEVICE,
	OPTION_FOREVER,
	OPTION_QUIET,
	OPTION_HELP,
	NOPTIONS
};

static uint64_t *field(struct options *o, const struct number *n)
{
	return (uint64_t *)((char *)o + n->field);
}

static const struct number device = { .name = "device", .max = 1023 };

static uint64_t number_read(const struct number *n, const char *text)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || value < n->min || value > n->max) {
		fprintf(stderr, "train: --%s %s: not a number from %llu to %llu\n", n->name,
			text, (unsigned long long)n->min, (unsigned long long)n->max);
		exit(2);
	}
	return value;
}

static void usage(FILE *to)
{
	fprintf(to, "usage: train [OPTION]...\n");
	for (int i = 0; i < NNUMBERS; i++)
		fprintf(to, "  --%s N%*s %s (%llu)\n", numbers[i].name,
			(int)(11 - strlen(numbers[i].name)), "", numbers[i].help,
			(unsigned long long)numbers[i].usual);
	fprintf(to,
		"  --text FILE     the tokens to learn, a byte each (%s)\n"
		"  --swap DIR      the optimizer's states live in a file there "
		"(FRAG_PINNED_MEM)\n"
		"  --swap-params   stage 3: this rank's bf16 shards live there too\n"
		"  --arena         stage 3: these shards, and gathered parameters, live in an "
		"arena\n"
		"  --device N      they live in memory of CUDA device N; with --swap on the "
		"disk, "
		"until\n"
		"                  fragctl place moves them\n"
		"  --forever       train until SIGTERM or SIGINT\n"
		"  --quiet         no lines of steps\n"
		"Rank and world are the launcher's (RANK, WORLD_SIZE); without one, alone.\n",
		TRAIN_TEXT);
}

static void defaults(struct options *o)
{
	*o = (struct options){ .text = TRAIN_TEXT };
	for (int i = 0; i < NNUMBERS; i++)
		*field(o, &numbers[i]) = numbers[i].usual;
}

static void take(struct options *o, int which)
{
	if (which >= 0 && which < NNUMBERS) {
		*field(o, &numbers[which]) = number_read(&numbers[which], optarg);
	} else if (which == OPTION_TEXT) {
		o->text = optarg;
	} else if (which == OPTION_SWAP) {
		o->swap = optarg;
	} else if (which == OPTION_DEVICE) {
		number_read(&device, optarg);
		o->device = optarg;
	} else if (which == OPTION_SWAP_PARAMS) {
		o->swap_params = true;
	} else if (which == OPTION_ARENA) {
		o->arena = true;
	} else if (which == OPTION_FOREVER) {
		o->forever = true;
	} else if (which == OPTION_QUIET) {
		o->quiet = true;
	} else {
		usage(which == OPTION_HELP ? stdout : stderr);
		exit(which == OPTION_HELP ? 0 : 2);
	}
}

void options_read(struct options *o, int argc, char **argv)
{
	struct option options[NOPTIONS + 1] = {
		[OPTION_TEXT] = { "text", required_argument, NULL, OPTION_TEXT },
		[OPTION_SWAP] = { "swap", required_argument, NULL, OPTION_SWAP },
		[OPTION_DEVICE] = { "device", required_argument, NULL, OPTION_DEVICE },
		[OPTION_SWAP_PARAMS] = { "swap-params", no_argument, NULL, OPTION_SWAP_PARAMS },
		[OPTION_ARENA] = { "arena", no_argument, NULL, OPTION_ARENA },
		[OPTION_FOREVER] = { "forever", no_argument, NULL, OPTION_FOREVER },
		[OPTION_QUIET] = { "quiet", no_argument, NULL, OPTION_QUIET },
		[OPTION_HELP] = { "help", no_argument, NULL, OPTION_HELP },
	};
	int which;

	for (int i = 0; i < NNUMBERS; i++)
		options[i] = (struct option){ numbers[i].name, required_argument, NULL, i };
	defaults(o);
	while ((which = getopt_long(argc, argv, "", options, NULL)) != -1)
		take(o, which);
	if (o->swap_params && (!o->swap || o->stage != 3)) {
		fprintf(stderr, "train: --swap-params needs --swap DIR and --stage 3\n");
		exit(2);
	}
	if (o->arena && (o->swap_params || o->stage != 3)) {
		fprintf(stderr, "train: --arena needs --stage 3, and no --swap-params\n");
		exit(2);
	}
	if (o->first_step > o->steps && !o->forever) {
		fprintf(stderr, "train: --first-step %llu is beyond --steps %llu\n",
			(unsigned long long)o->first_step, (unsigned long long)o->steps);
		exit(2);
	}
	if (optind < argc) {
		fprintf(stderr, "train: %s: no argument is expected\n", argv[optind]);
		exit(2);
	}
}
