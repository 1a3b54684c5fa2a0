/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/le.h"
#include "engine/checkpoint/parse/utf8.h"
#include "engine/checkpoint/parse/zip.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum {
	END_SIZE = 22,
	COMMENT_MAX = 65535,
	LOCATOR_SIZE = 20,
	END64_SIZE = 56,
	CENTRAL_SIZE = 46,
	LOCAL_SIZE = 30,
	ENTRIES_MAX = 1 << 20,
	DIRECTORY_MAX = 1 << 28,
	FLAG_ENCRYPTED = 1,
	FLAG_DESCRIPTOR = 8,
	EXTRA_ZIP64 = 1,
};

/* The central directory, as the end records describe it. */
struct directory {
	uint64_t count, at, size;
	uint64_t end; /* where the record behind the directory begins */
};

static bool is_record(const uint8_t *p, char a, char b)
{
	return p[0] == 'P' && p[1] == 'K' && p[2] == a && p[3] == b;
}

/* ---- the end ---- */

static bool ends_file(const uint8_t *tail, size_t size, size_t at)
{
	return at + END_SIZE <= size && at + END_SIZE + le_get16(tail + at + 20) == size;
}

/* Finds the end record.  The last one must end the file, and no earlier one may. */
static int find_end(const struct zip *z, const uint8_t *tail, size_t size, size_t *out,
		    struct parse_error *error)
{
	bool found = false;

	for (size_t at = size - END_SIZE + 1; at--;) {
		if (!is_record(tail + at, 5, 6))
			continue;
		if (found ? ends_file(tail, size, at) : !ends_file(tail, size, at))
			return parse_error_set(
				error, -EBADMSG,
				"two ends of a zip archive, or bytes after one, at "
				"byte %" PRIu64,
				z->blob.start + z->blob.size - size + at);
		if (!found)
			*out = at;
		found = true;
	}
	return found ? 0
		     : parse_error_set(error, -EBADMSG,
				       "not a zip archive: it has no end record");
}

/* Returns true if a field of the old end record has the zip64 record's value, or is full. */
static bool agree(uint64_t old, uint64_t full, uint64_t value)
{
	return old == full || old == value;
}

static int read_end64(const struct zip *z, uint64_t end, const uint8_t *record,
		      const uint8_t *locator, struct directory *d, struct parse_error *error)
{
	uint8_t r[END64_SIZE];
	uint64_t at = le_get64(locator + 8);
	int rc = blob_read(&z->blob, at, r, sizeof(r), error);

	if (rc)
		return rc;
	*d = (struct directory){ le_get64(r + 32), le_get64(r + 48), le_get64(r + 40), at };
	if (!is_record(r, 6, 6) || at > end - LOCATOR_SIZE - END64_SIZE ||
	    le_get64(r + 24) != d->count)
		return parse_error_set(error, -EBADMSG, "no zip64 end record at byte %" PRIu64,
				       z->blob.start + at);
	if (!agree(le_get16(record + 10), 0xffff, d->count) ||
	    !agree(le_get32(record + 12), 0xffffffff, d->size) ||
	    !agree(le_get32(record + 16), 0xffffffff, d->at))
		return parse_error_set(error, -EBADMSG,
				       "the two end records at byte %" PRIu64 " and %" PRIu64
				       " differ",
				       z->blob.start + at, z->blob.start + end);
	return 0;
}

static int read_end(const struct zip *z, uint64_t end, const uint8_t *record,
		    struct directory *d, struct parse_error *error)
{
	uint8_t locator[LOCATOR_SIZE] = { 0 };
	int rc = 0;

	if (end >= LOCATOR_SIZE + END64_SIZE)
		rc = blob_read(&z->blob, end - LOCATOR_SIZE, locator, LOCATOR_SIZE, error);
	if (rc)
		return rc;
	if (is_record(locator, 6, 7))
		return read_end64(z, end, record, locator, d, error);
	*d = (struct directory){ le_get16(record + 10), le_get32(record + 16),
				 le_get32(record + 12), end };
	if (le_get16(record + 8) != d->count)
		return parse_error_set(error, -EOPNOTSUPP, "a zip archive of several disks");
	return 0;
}

static int check_directory(const struct zip *z, const struct directory *d,
			   struct parse_error *error)
{
	uint64_t end;

	if (!d->count)
		return parse_error_set(error, -EBADMSG, "a zip archive without entries");
	if (d->count > ENTRIES_MAX || d->size > DIRECTORY_MAX)
		return parse_error_set(error, -EFBIG,
				       "%" PRIu64 " zip entries in a directory of %" PRIu64
				       " bytes",
				       d->count, d->size);
	if (!u64_add(d->at, d->size, &end) || end > d->end || d->size / CENTRAL_SIZE < d->count)
		return parse_error_set(error, -EBADMSG,
				       "no room for a zip directory of %" PRIu64
				       " bytes, %" PRIu64 " entries at byte %" PRIu64,
				       d->size, d->count, z->blob.start + d->at);
	return 0;
}

static int find_directory(const struct zip *z, struct directory *d, struct parse_error *error)
{
	size_t size = (size_t)u64_min(z->blob.size, END_SIZE + COMMENT_MAX), at = 0;
	CLEANUP(free) uint8_t *tail = malloc(size + 1);
	int rc;

	if (size < END_SIZE)
		return parse_error_set(error, -EBADMSG, "%" PRIu64 " bytes are no zip archive",
				       z->blob.size);
	if (!tail)
		return parse_error_set(error, -ENOMEM, "no memory");
	rc = blob_read(&z->blob, z->blob.size - size, tail, size, error);
	if (!rc)
		rc = find_end(z, tail, size, &at, error);
	if (!rc)
		rc = read_end(z, z->blob.size - size + at, tail + at, d, error);
	return rc ? rc : check_directory(z, d, error);
}

/* ---- the directory ---- */

/* A record's numbers, in the order of its zip64 field, which has those that are 0xffffffff in
 * the record.
 */
struct sizes {
	uint64_t real, stored, header;
};

static bool take_zip64(const uint8_t *field, size_t size, struct sizes *s)
{
	uint64_t *wanted[] = { &s->real, &s->stored, &s->header };

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		if (*wanted[i] != 0xffffffff)
			continue;
		if (size < 8)
			return false;
		*wanted[i] = le_get64(field);
		field += 8;
		size -= 8;
	}
	return true;
}

static bool take_extra(const uint8_t *extra, size_t size, struct sizes *s)
{
	bool found = false;

	while (size >= 4) {
		size_t n = le_get16(extra + 2);

		if (n > size - 4)
			return false;
		if (le_get16(extra) == EXTRA_ZIP64 && (found || !take_zip64(extra + 4, n, s)))
			return false;
		found |= le_get16(extra) == EXTRA_ZIP64;
		extra += 4 + n;
		size -= 4 + n;
	}
	return true;
}

static int check_method(const struct zip_entry *e, unsigned method, const struct sizes *s,
			struct parse_error *error)
{
	if (method)
		return parse_error_set(error, -EOPNOTSUPP,
				       "zip entry %.80s is compressed (method %u)", e->name,
				       method);
	if (e->flags & FLAG_ENCRYPTED)
		return parse_error_set(error, -EOPNOTSUPP, "zip entry %.80s is encrypted",
				       e->name);
	if (s->real != s->stored)
		return parse_error_set(error, -EBADMSG,
				       "zip entry %.80s is stored, %" PRIu64
				       " bytes in %" PRIu64,
				       e->name, s->real, s->stored);
	return 0;
}

static int broken_record(const struct zip *z, uint64_t at, struct parse_error *error)
{
	return parse_error_set(error, -EBADMSG, "broken zip directory at byte %" PRIu64,
			       z->blob.start + at);
}

/* Takes one record of the directory.  Its name, still with the top folder, goes to *names. */
static int take_record(struct zip *z, struct zip_entry *e, const uint8_t *r, size_t left,
		       char **names, size_t *taken, struct parse_error *error)
{
	if (left < CENTRAL_SIZE || !is_record(r, 1, 2))
		return broken_record(z, e->central, error);

	size_t name = le_get16(r + 28), extra = le_get16(r + 30), comment = le_get16(r + 32);
	struct sizes s = { le_get32(r + 24), le_get32(r + 20), le_get32(r + 42) };

	*taken = CENTRAL_SIZE + name + extra + comment;
	if (*taken > left || !utf8_is_valid(r + CENTRAL_SIZE, name, false) ||
	    memchr(r + CENTRAL_SIZE, '\0', name) || !memchr(r + CENTRAL_SIZE, '/', name) ||
	    !take_extra(r + CENTRAL_SIZE + name, extra, &s))
		return broken_record(z, e->central, error);
	e->name = memcpy(*names, r + CENTRAL_SIZE, name);
	(*names)[name] = '\0';
	*names += name + 1;
	e->header = s.header;
	e->size = s.real;
	e->crc = le_get32(r + 16);
	e->flags = le_get16(r + 8);
	return check_method(e, le_get16(r + 10), &s, error);
}

static int take_records(struct zip *z, const struct directory *d, const uint8_t *r,
			struct parse_error *error)
{
	size_t at = 0, taken = 0;
	char *names = z->names;
	int rc = 0;

	for (; z->nentries < d->count && !rc; z->nentries++, at += taken) {
		struct zip_entry *e = &z->entries[z->nentries];

		e->central = d->at + at;
		rc = take_record(z, e, r + at, d->size - at, &names, &taken, error);
	}
	if (!rc && at != d->size)
		rc = broken_record(z, d->at + at, error);
	return rc;
}

static int read_directory(struct zip *z, const struct directory *d, struct parse_error *error)
{
	CLEANUP(free) uint8_t *records = malloc(d->size);
	int rc;

	/* a record has more bytes than its name and a NUL: all names fit */
	z->names = malloc(d->size);
	z->entries = calloc(d->count, sizeof(*z->entries));
	z->by_name = calloc(d->count, sizeof(*z->by_name));
	if (!records || !z->names || !z->entries || !z->by_name)
		return parse_error_set(error, -ENOMEM, "no memory for %" PRIu64 " zip entries",
				       d->count);
	rc = blob_read(&z->blob, d->at, records, d->size, error);
	return rc ? rc : take_records(z, d, records, error);
}

/* ---- the entries ---- */

static int read_local(const struct zip *z, struct zip_entry *e, struct parse_error *error)
{
	size_t name = strlen(e->name);
	/* a name has 16 bits of length */
	uint8_t header[LOCAL_SIZE + 65536];
	uint64_t end;
	int rc = blob_read(&z->blob, e->header, header, LOCAL_SIZE + name, error);

	if (rc)
		return rc;
	if (!is_record(header, 3, 4) || le_get16(header + 26) != name ||
	    memcmp(header + LOCAL_SIZE, e->name, name))
		return parse_error_set(error, -EBADMSG,
				       "zip entry %.80s is not at byte %" PRIu64, e->name,
				       z->blob.start + e->header);
	e->data = e->header + LOCAL_SIZE + name + le_get16(header + 28);
	if (!u64_add(e->data, e->size, &end) || end > z->blob.size)
		return parse_error_set(error, -EBADMSG,
				       "zip entry %.80s, %" PRIu64 " bytes at byte %" PRIu64
				       ", does not end in the file",
				       e->name, e->size, z->blob.start + e->data);
	return 0;
}

static int compare_places(const void *a, const void *b)
{
	const struct zip_entry *p = a, *q = b;

	return (p->header > q->header) - (p->header < q->header);
}

static int read_locals(struct zip *z, const struct directory *d, struct parse_error *error)
{
	uint64_t end = 0;
	int rc = 0;

	qsort(z->entries, z->nentries, sizeof(*z->entries), compare_places);
	for (uint32_t i = 0; i < z->nentries && !rc; i++) {
		struct zip_entry *e = &z->entries[i];

		rc = read_local(z, e, error);
		if (!rc && (e->header < end || e->data + e->size > d->at))
			rc = parse_error_set(error, -EBADMSG,
					     "zip entry %.80s at byte %" PRIu64
					     " overlaps another or the directory",
					     e->name, z->blob.start + e->header);
		end = e->data + e->size;
	}
	return rc;
}

/* ---- the names ---- */

static int strip_top(struct zip *z, struct parse_error *error)
{
	size_t top = (size_t)(strchr(z->entries[0].name, '/') - z->entries[0].name);

	z->top = strndup(z->entries[0].name, top);
	if (!z->top)
		return parse_error_set(error, -ENOMEM, "no memory");
	for (uint32_t i = 0; i < z->nentries; i++) {
		struct zip_entry *e = &z->entries[i];

		if (strncmp(e->name, z->top, top) || e->name[top] != '/')
			return parse_error_set(
				error, -EBADMSG,
				"zip entry %.80s is not below %.80s, as others are", e->name,
				z->top);
		e->name += top + 1;
	}
	return 0;
}

static int compare_names(const void *a, const void *b, void *entries)
{
	const struct zip_entry *e = entries;

	return strcmp(e[*(const uint32_t *)a].name, e[*(const uint32_t *)b].name);
}

static int sort_names(struct zip *z, struct parse_error *error)
{
	for (uint32_t i = 0; i < z->nentries; i++)
		z->by_name[i] = i;
	qsort_r(z->by_name, z->nentries, sizeof(*z->by_name), compare_names, z->entries);
	for (uint32_t i = 1; i < z->nentries; i++)
		if (!compare_names(&z->by_name[i - 1], &z->by_name[i], z->entries))
			return parse_error_set(error, -EBADMSG, "two zip entries %.80s",
					       z->entries[z->by_name[i]].name);
	return 0;
}

int zip_open(struct zip *z, const struct blob *b, struct parse_error *error)
{
	struct directory d = { 0 };
	int rc;

	*z = (struct zip){ .blob = *b };
	rc = find_directory(z, &d, error);
	if (!rc)
		rc = read_directory(z, &d, error);
	if (!rc)
		rc = read_locals(z, &d, error);
	if (!rc)
		rc = strip_top(z, error);
	if (!rc)
		rc = sort_names(z, error);
	if (rc)
		zip_close(z);
	return rc;
}

void zip_close(struct zip *z)
{
	free(z->top);
	free(z->entries);
	free(z->by_name);
	free(z->names);
	*z = (struct zip){ .blob = z->blob };
}

const struct zip_entry *zip_find(const struct zip *z, const char *name)
{
	uint64_t at =
		LOWER_BOUND(z->nentries, i, strcmp(z->entries[z->by_name[i]].name, name) < 0);
	const struct zip_entry *e = at < z->nentries ? &z->entries[z->by_name[at]] : NULL;

	return e && !strcmp(e->name, name) ? e : NULL;
}

int zip_crc_places(const struct zip *z, const struct zip_entry *entry,
		   struct zip_crc_places *out, struct parse_error *error)
{
	uint64_t descriptor = entry->data + entry->size;
	uint8_t d[12];
	int rc;

	*out = (struct zip_crc_places){ entry->central + 16, entry->header + 14 };
	if (!(entry->flags & FLAG_DESCRIPTOR))
		return 0;
	rc = blob_read(&z->blob, descriptor, d, sizeof(d), error);
	if (rc)
		return rc;
	if (!is_record(d, 7, 8) || le_get32(d + 8) != (uint32_t)entry->size)
		return parse_error_set(
			error, -EBADMSG,
			"zip entry %.80s has no data descriptor at byte %" PRIu64, entry->name,
			z->blob.start + descriptor);
	out->local = descriptor + 4;
	return 0;
}
