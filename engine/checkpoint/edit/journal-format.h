/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_JOURNAL_FORMAT_H
#define ENGINE_CHECKPOINT_EDIT_JOURNAL_FORMAT_H

/* Constants of the undo journal's format: journal.c writes it, journal-undo.c reads it. */

#include "engine/checkpoint/parse/little-endian.h"

#define JOURNAL_MAGIC "fragfs\x8a\n"

enum {
	JOURNAL_VERSION = 2,
	JOURNAL_HEADER = 32,
	JOURNAL_FILE = 30, /* a file's row, its path follows */
	JOURNAL_RANGE = 20,
	JOURNAL_CHECKSUM = 4,
	JOURNAL_CHUNK = 1 << 20,
};

#endif
