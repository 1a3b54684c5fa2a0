/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_ZIP_H
#define ENGINE_CHECKPOINT_PARSE_ZIP_H

/* The container of torch.save: a zip archive whose entries are all stored, below one top
 * folder.
 *
 *   local header, name, padding | data | descriptor      per entry, in any order
 *   central directory | [zip64 end | its locator] | end
 *
 * Strict where two readers could disagree: two ends, two names, overlaps, duplicates,
 * compressed or encrypted entries, all are refused.  Reading never looks at data or checks a
 * CRC.
 */

#include "engine/checkpoint/parse/blob.h"

struct zip_entry {
	const char *name; /* below the top folder: "data.pkl", "data/0"; without NUL bytes */
	uint64_t header;  /* of the local header, in the blob, as all places here */
	uint64_t data;
	uint64_t size;
	uint64_t central; /* of its record in the central directory */
	uint32_t crc;     /* as the central directory has it; torch may have left it wrong */
	uint16_t flags;
};

struct zip {
	struct blob blob;
	char *top; /* the name of the folder */
	uint32_t nentries;
	struct zip_entry *entries; /* in the order of the file */
	uint32_t *by_name;
	char *names;
};

/* -EBADMSG, -EOPNOTSUPP, -EFBIG, -EIO, -ENOMEM. */
int zip_open(struct zip *z, const struct blob *b, struct parse_error *error);
void zip_close(struct zip *z);

/* NULL: there is none.  O(log n). */
const struct zip_entry *zip_find(const struct zip *z, const char *name);

/* Where the CRC of an entry stands, for who changes its data: 32 bits little-endian each. */
struct zip_crc_places {
	uint64_t central; /* in the central directory */
	uint64_t local;   /* in the data descriptor or, without one, in the local header */
};

/* -EBADMSG: the descriptor that its flags promise is not there. */
int zip_crc_places(const struct zip *z, const struct zip_entry *entry,
		   struct zip_crc_places *out, struct parse_error *error);

#endif
