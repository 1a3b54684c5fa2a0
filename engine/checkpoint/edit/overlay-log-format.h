/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_OVERLAY_LOG_FORMAT_H
#define ENGINE_CHECKPOINT_EDIT_OVERLAY_LOG_FORMAT_H

/* Constants of the overlay log's format: overlay-log.c writes it, overlay-log-read.c reads it.
 */

#include "engine/checkpoint/parse/little-endian.h"

#define OVERLAY_LOG_MAGIC "fragfs\x8b\n"
#define OVERLAY_LOG_NEW OVERLAY_LOG_NAME ".new"

enum {
	OVERLAY_LOG_VERSION = 1,
	OVERLAY_LOG_ALIGN = 64,
	OVERLAY_LOG_HEAD = 32, /* the path and the files follow */
	OVERLAY_LOG_HEAD_MAX = 1 << 26,
	OVERLAY_LOG_FILE = 38, /* a file's row, its name follows */
	OVERLAY_LOG_COMMIT = 64,
	OVERLAY_LOG_COMMIT_SUMMED = 56,
	OVERLAY_LOG_RANGE = 20,
	OVERLAY_LOG_SUM = 8,
	OVERLAY_LOG_CHUNK = 1 << 20, /* that is written or read at once */
};

enum overlay_log_kind { OVERLAY_LOG_EDIT = 1, OVERLAY_LOG_WRITTEN = 2 };

static inline uint64_t overlay_log_align(uint64_t at)
{
	return (at + OVERLAY_LOG_ALIGN - 1) / OVERLAY_LOG_ALIGN * OVERLAY_LOG_ALIGN;
}

#endif
