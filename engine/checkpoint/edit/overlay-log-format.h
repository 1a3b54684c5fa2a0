/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_OVERLAY_LOG_FORMAT_H
#define ENGINE_CHECKPOINT_EDIT_OVERLAY_LOG_FORMAT_H

/* What who writes a log and who reads it share. */

#include "engine/checkpoint/parse/little-endian.h"

#define REDO_MAGIC "fragfs\x8b\n"
#define REDO_NEW REDO_NAME ".new"

enum {
	REDO_VERSION = 1,
	REDO_ALIGN = 64,
	REDO_HEAD = 32, /* then the path and files */
	REDO_HEAD_MAX = 1 << 26,
	REDO_FILE = 38, /* and its name */
	REDO_COMMIT = 64,
	REDO_COMMIT_SUMMED = 56,
	REDO_RANGE = 20,
	REDO_SUM = 8,
	REDO_CHUNK = 1 << 20,
};

enum redo_kind { REDO_EDIT = 1, REDO_WRITTEN = 2 };

static inline uint64_t redo_align(uint64_t at)
{
	return (at + REDO_ALIGN - 1) / REDO_ALIGN * REDO_ALIGN;
}

#endif
