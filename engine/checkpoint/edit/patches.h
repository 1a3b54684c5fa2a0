/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_PATCHES_H
#define ENGINE_CHECKPOINT_EDIT_PATCHES_H

/* Patches: new bytes for ranges of a table's files, and the CRCs of zip entries that change
 * with them.  Used in this order:
 *
 *      patches_add ...         a later patch wins where two overlap
 *      patches_finish          sorts, makes patches disjoint, adds a patch for each CRC
 *      patches_look            reads all bytes that the patches replace, and computes the CRCs
 *      patches_apply           writes
 */

#include "engine/base/vec.h"
#include "engine/checkpoint/edit/overlay-map.h"
#include "engine/checkpoint/table/table.h"

#include <stdatomic.h>

struct patch {
	uint64_t offset, size; /* bytes in the file */
	const uint8_t *bytes;  /* the new bytes */
	uint32_t file;
	uint32_t number; /* in the order in which they were added */
	uint8_t *crc;    /* a patch of a CRC: its bytes; NULL: a patch of data */
};

struct patch_crc {
	const struct table_entry *entry;
	uint32_t change;      /* old CRC ^ new CRC, the same for both places */
	uint8_t places[2][4]; /* new bytes in the directory, and in the descriptor */
};

struct patches {
	const struct table *table;
	const struct overlay_map *overlay; /* over the files; NULL: none */
	struct vec all;                    /* struct patch */
	struct vec owned;                  /* void * */
	struct vec crcs;                   /* struct patch_crc, in the order of entries */
	uint64_t bytes;                    /* bytes of all patches, after patches_finish() */
};

void patches_init(struct patches *p, const struct table *table,
		  const struct overlay_map *overlay);
void patches_fini(struct patches *p);

/* Adds a patch; borrows `bytes` until patches_fini().
 * -ENOMEM.
 */
int patches_add(struct patches *p, uint32_t file, uint64_t offset, uint64_t size,
		const void *bytes);
/* Returns memory that patches_fini() frees; NULL: no memory. */
void *patches_lend(struct patches *p, uint64_t size);

/* Sorts the patches, merges those that overlap, and adds those of CRCs.
 * -EINVAL: a patch reaches behind the end of its file, or into a CRC.
 * -ENOMEM.
 */
int patches_finish(struct patches *p);

static inline uint32_t patches_count(const struct patches *p)
{
	return p->all.count;
}

static inline const struct patch *patches_get(const struct patches *p, uint32_t i)
{
	return (const struct patch *)p->all.items + i;
}

/* Reads the present bytes of a file, through the overlay if there is one. */
static inline int patches_read_old(const struct patches *p, uint32_t file, uint64_t offset,
				   void *to, uint64_t size)
{
	return overlay_map_read(p->overlay, p->table, file, offset, to, size);
}

/* Returns true if a patch changes some of these bytes. */
bool patches_touch(const struct patches *p, uint32_t file, uint64_t offset, uint64_t size);

enum { PATCHES_CHUNK = 1 << 20 };

/* Reads the bytes that the patches replace, patch after patch, and computes the new CRCs from
 * them.  see, if there is one, is called for each PATCHES_CHUNK of a patch, or its end, and
 * ends the look by a result other than 0, which is returned.
 * -ECANCELED: *cancelled became true.
 */
int patches_look(struct patches *p, int (*see)(void *arg, const void *old, size_t size),
		 void *arg, const _Atomic bool *cancelled);

/* Writes all patches to the files and syncs these.  On error some may have been written. */
int patches_apply(const struct patches *p);

#endif
