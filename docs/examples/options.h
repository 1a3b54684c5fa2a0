/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPTIONS_H
#define OPTIONS_H

/* The command line of the example. */

#include <stdbool.h>
#include <stdint.h>

struct options {
	uint64_t stage;
	uint64_t first_step; /* steps that a job before this one has done */
	uint64_t steps;      /* the last one's number */
	uint64_t seed;
	uint64_t batch; /* samples of one rank */
	uint64_t hidden;
	uint64_t every; /* steps between two lines */
	uint64_t pause_ms;
	const char *text;
	const char *swap;   /* folder of states on NVMe; NULL: states are in memory */
	bool swap_params;   /* this rank's bf16 shards are on NVMe too */
	bool arena;         /* they, and parameters that are gathered, are in an arena */
	const char *device; /* the number of the device that has the states; NULL: none has */
	uint64_t device_ms;
	bool forever;
	bool quiet;
};

/* Exits where the command line asks for help (0) or cannot be understood (2). */
void options_read(struct options *o, int argc, char **argv);

#endif
