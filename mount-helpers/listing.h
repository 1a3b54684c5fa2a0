/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_LISTING_H
#define MOUNT_HELPERS_LISTING_H

/* The tables that fragctl prints: aligned columns for people; with -H a line of fields with
 * tabs between them and no heading; with --json a list of objects.  -o chooses columns, -p
 * prints numbers unrounded.
 */

#include "mount-helpers/call.h"

enum listing_kind {
	LISTING_TEXT,
	LISTING_NUMBER,
	LISTING_BYTES, /* 1.5G, 12M or 900B; -p: 1610612736 */
	LISTING_REAL,  /* four digits; -p: seventeen */
};

struct listing_column {
	const char *name; /* NULL ends a list of columns */
	enum listing_kind kind;
	bool more; /* shown only if -o names it */
};

struct listing {
	const struct call *call;
	const struct listing_column *columns;
	size_t *shown; /* numbers of columns, in the order of -o */
	size_t nshown;
	json_t *rows; /* lists of cells; null: there is no value */
};

/* Borrows columns.  Returns the exit status if -o is wrong; a line was printed. */
int listing_init(struct listing *t, const struct call *call,
		 const struct listing_column *columns);
void listing_fini(struct listing *t);
/* Returns true if the column will be shown; the caller need not find values for others. */
bool listing_wants(const struct listing *t, size_t column);

/* Adds a row; the functions below fill its cells. */
void listing_row(struct listing *t);
void listing_text(struct listing *t, size_t column, const char *text);
void listing_number(struct listing *t, size_t column, uint64_t number);
void listing_real(struct listing *t, size_t column, double number);
/* Fills a cell; takes value. */
void listing_json(struct listing *t, size_t column, json_t *value);

/* Cuts a line at its tabs; returns the number of its fields. */
enum { LISTING_FIELDS_MAX = 32 };
size_t listing_cut(char *line, char *fields[LISTING_FIELDS_MAX]);
/* Returns the field whose heading is `name`, or "-". */
const char *listing_find(char *const *names, char *const *fields, size_t n, const char *name);
/* Fills a cell from a field's text; "-" is no value. */
void listing_field(struct listing *t, size_t column, const char *text);
/* Adds a row, whose cells are the n fields with the columns' names as headings. */
void listing_fields(struct listing *t, char *const *names, char *const *fields, size_t n);

/* Prints the table to standard output; as JSON, an object that has the rows under `name`.
 * Returns the exit status.
 */
int listing_print(struct listing *t, const char *name);
/* Writes bytes as 1.5G, 12M or 900B, and returns text. */
const char *listing_size(uint64_t bytes, char text[16]);
/* Returns the rows as a list of JSON objects. */
json_t *listing_rows_json(const struct listing *t);

#endif
