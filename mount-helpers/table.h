/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_TABLE_H
#define MOUNT_HELPERS_TABLE_H

/* The tables that fragctl prints: aligned columns for people; with -H a line of fields with
 * tabs between them and no heading; with --json a list of objects.  -o chooses columns, -p
 * prints numbers unrounded.
 */

#include "mount-helpers/call.h"

enum table_kind {
	TABLE_TEXT,
	TABLE_NUMBER,
	TABLE_BYTES, /* 1.5G, 12M or 900B; -p: 1610612736 */
	TABLE_REAL,  /* four digits; -p: seventeen */
};

struct table_column {
	const char *name; /* NULL ends a list of columns */
	enum table_kind kind;
	bool more; /* shown only if -o names it */
};

struct table {
	const struct call *call;
	const struct table_column *columns;
	size_t *shown; /* numbers of columns, in the order of -o */
	size_t nshown;
	json_t *rows; /* lists of cells; null: there is no value */
};

/* Borrows columns.  Returns the exit status if -o is wrong; a line was printed. */
int table_init(struct table *t, const struct call *call, const struct table_column *columns);
void table_fini(struct table *t);
/* Returns true if the column will be shown; the caller need not find values for others. */
bool table_wants(const struct table *t, size_t column);

/* Adds a row; the functions below fill its cells. */
void table_row(struct table *t);
void table_text(struct table *t, size_t column, const char *text);
void table_number(struct table *t, size_t column, uint64_t number);
void table_real(struct table *t, size_t column, double number);
/* Fills a cell; takes value. */
void table_json(struct table *t, size_t column, json_t *value);

/* Cuts a line at its tabs; returns the number of its fields. */
enum { TABLE_FIELDS_MAX = 32 };
size_t table_cut(char *line, char *fields[TABLE_FIELDS_MAX]);
/* Returns the field whose heading is `name`, or "-". */
const char *table_find(char *const *names, char *const *fields, size_t n, const char *name);
/* Fills a cell from a field's text; "-" is no value. */
void table_field(struct table *t, size_t column, const char *text);
/* Adds a row, whose cells are the n fields with the columns' names as headings. */
void table_fields(struct table *t, char *const *names, char *const *fields, size_t n);

/* Prints the table to standard output; as JSON, an object that has the rows under `name`.
 * Returns the exit status.
 */
int table_print(struct table *t, const char *name);
/* Writes bytes as 1.5G, 12M or 900B, and returns text. */
const char *table_size(uint64_t bytes, char text[16]);
/* Returns the rows as a list of JSON objects. */
json_t *table_rows_json(const struct table *t);

#endif
