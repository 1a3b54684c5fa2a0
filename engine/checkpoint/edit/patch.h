/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_PATCH_H
#define ENGINE_CHECKPOINT_EDIT_PATCH_H

/* Patches: new bytes for ranges of a table's files, and the CRCs of zip entries that change
 * with them.  Used in this order:
 *
 *	patches_add ...		a later patch wins where two overlap
 *	patches_finish		sorts, makes patches disjoint, adds a patch for each CRC
 *	patches_saw ...		is shown all bytes that the patches replace, piece by piece
 *	patches_seal		computes the CRCs
 *	patches_apply		writes
 */

#include "engine/base/vec.h"
#include "engine/checkpoint/edit/overlay-map.h"
#include "engine/checkpoint/table/table.h"

struct patch {
	uint64_t offset, size; /* bytes in the file */
	const uint8_t *bytes;  /* the new bytes */
	uint32_t file;
	uint32_t number; /* in the order in which they were added */
	uint8_t *crc;    /* a patch of a CRC: its bytes; NULL: a patch of data */
};

struct patch_crc {
	const struct table_entry *entry;
	uint32_t change; /* old CRC ^ new CRC, of either place */
	uint8_t places[2]
		      [4]; /* the bytes to be written in the directory, and in the descriptor */
};

struct patches {
	const struct table *table;
	const struct overlay_map *overlay; /* over the files; NULL: none */
	struct vec all;                    /* struct patch */
	struct vec owned;                  /* void * */
	struct vec crcs;                   /* struct patch_crc, in the order of entries */
	uint64_t bytes;                    /* after finish */
};

void patches_init(struct patches *p, const struct table *table,
		  const struct overlay_map *overlay);
void patches_fini(struct patches *p);

/* Adds a patch; borrows `bytes` until patches_fini(). */
int patches_add(struct patches *p, uint32_t file, uint64_t offset, uint64_t size,
		const void *bytes);
/* Returns memory that patches_fini() frees; NULL: no memory. */
void *patches_lend(struct patches *p, uint64_t size);

/* -EINVAL: a patch reaches behind the end of its file, or into a CRC. */
int patches_finish(struct patches *p);

static inline uint32_t patches_count(const struct patches *p)
{
	return p->all.count;
}

static inline const struct patch *patches_get(const struct patches *p, uint32_t i)
{
	return (const struct patch *)p->all.items + i;
}

/* Reads the bytes that are there now, through the overlay if there is one. */
static inline int patches_read_old(const struct patches *p, uint32_t file, uint64_t offset,
				   void *to, uint64_t size)
{
	return overlay_map_read(p->overlay, p->table, file, offset, to, size);
}

/* Whether a patch changes some of these bytes. */
bool patches_touch(const struct patches *p, uint32_t file, uint64_t offset, uint64_t size);

/* Takes note of `size` bytes that the patch replaces, from its byte `at` on. */
void patches_saw(struct patches *p, const struct patch *patch, uint64_t at, const void *old,
		 uint64_t size);
void patches_seal(struct patches *p);

/* Writes all patches to the files and syncs these.  On error some may have been written. */
int patches_apply(const struct patches *p);

#endif
