/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_PATCH_H
#define ENGINE_CHECKPOINT_EDIT_PATCH_H

/* New bytes for ranges of a table's files, and the CRCs that change with them.
 *
 *	patches_add ...			later ones win where some overlap
 *	patches_finish				sorted, apart from each other; a patch for each CRC
 *	patches_saw ...				all that they replace, piece by piece
 *	patches_seal				now the CRCs are known
 *	patches_apply
 */

#include "engine/base/vec.h"
#include "engine/checkpoint/edit/overlay-map.h"
#include "engine/checkpoint/table/table.h"

struct patch {
	uint64_t offset, size; /* bytes in the file */
	const uint8_t *bytes;  /* the new ones */
	uint32_t file;
	uint32_t number; /* in the order in which they were added */
	uint8_t *crc;    /* bytes, of a CRC; NULL: data */
};

struct patch_crc {
	const struct table_entry *entry;
	uint32_t change;      /* of either CRC, by exclusive or */
	uint8_t places[2][4]; /* what is written there */
};

struct patches {
	const struct table *table;
	const struct overlay_map *overlay; /* over the table's files; NULL: none */
	struct vec all;                    /* struct patch */
	struct vec owned;                  /* void * */
	struct vec crcs;                   /* struct patch_crc, in the order of entries */
	uint64_t bytes;                    /* after finish */
};

void patches_init(struct patches *p, const struct table *table,
		  const struct overlay_map *overlay);
void patches_fini(struct patches *p);

/* bytes stay the caller's until patches_fini. */
int patches_add(struct patches *p, uint32_t file, uint64_t offset, uint64_t size,
		const void *bytes);
/* Memory that patches_fini frees; NULL: there is none. */
void *patches_lend(struct patches *p, uint64_t size);

/* -EINVAL: bytes behind the end of a file, or in a CRC. */
int patches_finish(struct patches *p);

static inline uint32_t patches_count(const struct patches *p)
{
	return p->all.count;
}

static inline const struct patch *patches_get(const struct patches *p, uint32_t i)
{
	return (const struct patch *)p->all.items + i;
}

/* What is there now.  As overlay_map_read. */
static inline int patches_read_old(const struct patches *p, uint32_t file, uint64_t offset,
				   void *to, uint64_t size)
{
	return overlay_map_read(p->overlay, p->table, file, offset, to, size);
}

/* Whether some of the bytes are among them. */
bool patches_touch(const struct patches *p, uint32_t file, uint64_t offset, uint64_t size);

/* The `size` bytes that are now at `at` of a patch. */
void patches_saw(struct patches *p, const struct patch *patch, uint64_t at, const void *old,
		 uint64_t size);
void patches_seal(struct patches *p);

/* Writes them and waits until the disks have them.  -EIO and whatever else: some may be
 * written.
 */
int patches_apply(const struct patches *p);

#endif
