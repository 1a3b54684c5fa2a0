/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_ZIP_H
#define ENGINE_CHECKPOINT_PARSE_ZIP_H

/* The container of torch.save: a zip archive whose entries are all stored (not compressed)
 * below one top folder.
 *
 *   local header, name, padding | data | descriptor      per entry, in any order
 *   central directory | [zip64 end | its locator] | end
 *
 * The reader is strict where two readers could disagree: it refuses two ends, two names,
 * overlaps, duplicates, compressed and encrypted entries.  It never reads data or checks a CRC.
 */

#include "engine/checkpoint/parse/blob.h"

struct zip_entry {
	const char *name; /* below the top folder: "data.pkl", "data/0"; without NUL bytes */
	uint64_t header;  /* where its local header is; all places are bytes in the blob */
	uint64_t data;
	uint64_t size;
	uint64_t central; /* where its record in the central directory is */
	uint32_t crc;     /* from the central directory; torch may have written a wrong one */
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

/* Errors of parse-error.h. */
int zip_open(struct zip *z, const struct blob *b, struct parse_error *error);
void zip_close(struct zip *z);

/* Finds an entry by its name; NULL: none.  O(log n). */
const struct zip_entry *zip_find(const struct zip *z, const char *name);

/* The places of an entry's CRC, for edits of its data: 32 bits little-endian each. */
struct zip_crc_places {
	uint64_t central; /* in the central directory */
	uint64_t local;   /* in the data descriptor or, without one, in the local header */
};

/* Finds the places of an entry's CRC.
 * -EBADMSG: the descriptor that the entry's flags promise is not there.
 */
int zip_crc_places(const struct zip *z, const struct zip_entry *entry,
		   struct zip_crc_places *out, struct parse_error *error);

#endif
