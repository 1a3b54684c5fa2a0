/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/listing.h"

#include "engine/base/base.h"
#include "engine/base/one-line.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum { CELL_MAX = 3 * PATH_MAX }; /* each byte of a path may be escaped */

/* ---- columns ---- */

static size_t count_columns(const struct listing_column *columns)
{
	size_t n = 0;

	while (columns[n].name)
		n++;
	return n;
}

static size_t find_column(const struct listing_column *columns, const char *name, size_t length)
{
	size_t i = 0;

	while (columns[i].name &&
	       (strncmp(columns[i].name, name, length) || columns[i].name[length]))
		i++;
	return i;
}

static int refuse_column(const struct listing *t, const char *name, size_t length)
{
	fprintf(stderr, "fragctl: -o %.*s: a column, of", (int)length, name);
	for (size_t i = 0; t->columns[i].name; i++)
		fprintf(stderr, "%s %s", i ? "," : "", t->columns[i].name);
	fputc('\n', stderr);
	return FRAGCTL_USAGE;
}

int listing_init(struct listing *t, const struct call *call,
		 const struct listing_column *columns)
{
	size_t ncolumns = count_columns(columns), column, length;
	size_t room = ncolumns + (call->output ? strlen(call->output) : 0);

	*t = (struct listing){ .call = call,
			       .columns = columns,
			       .shown = calloc(room + 1, sizeof(*t->shown)),
			       .rows = json_array() };
	if (!t->shown || !t->rows) {
		listing_fini(t);
		return call_fail("%s", strerror(ENOMEM));
	}
	for (size_t i = 0; !call->output && i < ncolumns; i++)
		if (!columns[i].more)
			t->shown[t->nshown++] = i;
	for (const char *name = call->output; name;
	     name = name[length] ? name + length + 1 : NULL) {
		length = strcspn(name, ",");
		column = find_column(columns, name, length);
		if (column == ncolumns) {
			refuse_column(t, name, length);
			listing_fini(t);
			return FRAGCTL_USAGE;
		}
		t->shown[t->nshown++] = column;
	}
	return 0;
}

void listing_fini(struct listing *t)
{
	free(t->shown);
	json_decref(t->rows);
}

bool listing_wants(const struct listing *t, size_t column)
{
	for (size_t i = 0; i < t->nshown; i++)
		if (t->shown[i] == column)
			return true;
	return false;
}

/* ---- cells ---- */

void listing_row(struct listing *t)
{
	json_t *row = json_array();

	for (size_t i = count_columns(t->columns); i-- > 0;)
		json_array_append_new(row, json_null());
	json_array_append_new(t->rows, row);
}

void listing_json(struct listing *t, size_t column, json_t *value)
{
	json_array_set_new(json_array_get(t->rows, json_array_size(t->rows) - 1), column,
			   value);
}

size_t listing_cut(char *line, char *fields[LISTING_FIELDS_MAX])
{
	size_t n = 0;

	for (char *field; n < LISTING_FIELDS_MAX && (field = strsep(&line, "\t"));)
		fields[n++] = field;
	return n;
}

const char *listing_find(char *const *names, char *const *fields, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return fields[i];
	return "-";
}

void listing_field(struct listing *t, size_t column, const char *text)
{
	enum listing_kind kind = t->columns[column].kind;

	if (!strcmp(text, "-"))
		return;
	if (kind == LISTING_NUMBER || kind == LISTING_BYTES)
		listing_number(t, column, strtoull(text, NULL, 10));
	else if (kind == LISTING_REAL)
		listing_real(t, column, strtod(text, NULL));
	else
		listing_text(t, column, text);
}

void listing_fields(struct listing *t, char *const *names, char *const *fields, size_t n)
{
	listing_row(t);
	for (size_t column = 0; t->columns[column].name; column++)
		listing_field(t, column,
			      listing_find(names, fields, n, t->columns[column].name));
}

void listing_text(struct listing *t, size_t column, const char *text)
{
	listing_json(t, column, one_line_json(text));
}

void listing_number(struct listing *t, size_t column, uint64_t number)
{
	listing_json(t, column, json_integer((json_int_t)number));
}

/* Fills a cell.  JSON has no infinity and no NaN, so they become strings. */
void listing_real(struct listing *t, size_t column, double number)
{
	listing_json(t, column,
		     isnan(number)   ? json_string("nan")
		     : isinf(number) ? json_string(number < 0 ? "-inf" : "inf")
				     : json_real(number));
}

/* ---- output ---- */

const char *listing_size(uint64_t bytes, char text[16])
{
	static const char units[] = "BKMGTPE";
	double value = (double)bytes;
	int unit = 0;

	for (; value >= 1024; unit++)
		value /= 1024;
	snprintf(text, 16, unit && value < 10 ? "%.1f%c" : "%.0f%c", value, units[unit]);
	return text;
}

/* Writes a cell for people, or for a program that reads fields; returns the text. */
static const char *cell_text(const struct listing *t, size_t column, const json_t *cell,
			     char text[CELL_MAX])
{
	bool exact = call_has(t->call, 'p');

	if (json_is_string(cell)) {
		one_line(json_string_value(cell), text, CELL_MAX);
		return text;
	}
	if (json_is_null(cell) || !cell)
		return "-";
	if (json_is_real(cell) || t->columns[column].kind == LISTING_REAL)
		snprintf(text, CELL_MAX, exact ? "%.17g" : "%.4g", json_number_value(cell));
	else if (json_is_boolean(cell))
		return json_is_true(cell) ? "yes" : "no";
	else if (t->columns[column].kind == LISTING_BYTES && !exact)
		listing_size((uint64_t)json_integer_value(cell), text);
	else
		snprintf(text, CELL_MAX, "%" JSON_INTEGER_FORMAT, json_integer_value(cell));
	return text;
}

static void print_fields(const struct listing *t)
{
	size_t index;
	json_t *row;
	char text[CELL_MAX];

	json_array_foreach (t->rows, index, row)
		for (size_t i = 0; i < t->nshown; i++)
			printf("%s%c",
			       cell_text(t, t->shown[i], json_array_get(row, t->shown[i]),
					 text),
			       i + 1 < t->nshown ? '\t' : '\n');
}

/* Returns the columns of a terminal that UTF-8 takes: the bytes that begin a character. */
static int width_of(const char *text)
{
	int width = 0;

	for (; *text; text++)
		width += (*text & 0xc0) != 0x80;
	return width;
}

/* Prints a row, each cell as wide as its column, without spaces at the end. */
static void print_row(const struct listing *t, const int *widths, const json_t *row)
{
	int spaces = 0;

	for (size_t i = 0; i < t->nshown; i++) {
		const struct listing_column *column = &t->columns[t->shown[i]];
		char buffer[CELL_MAX], name[64];
		const char *text = name;
		int left;

		if (row) {
			text = cell_text(t, t->shown[i], json_array_get(row, t->shown[i]),
					 buffer);
		} else {
			snprintf(name, sizeof(name), "%s", column->name);
			for (char *c = name; *c; c++)
				*c = (char)toupper((unsigned char)*c);
		}
		left = widths[i] - width_of(text);
		if (column->kind != LISTING_TEXT && left > 0)
			spaces += left;
		if (*text)
			printf("%*s%s", spaces, "", text);
		spaces = (column->kind == LISTING_TEXT && left > 0 ? left : 0) +
			 (*text ? 2 : spaces + 2);
	}
	putchar('\n');
}

static void print_aligned(const struct listing *t)
{
	int *widths = calloc(t->nshown + 1, sizeof(*widths));
	char text[CELL_MAX];
	size_t index;
	json_t *row;

	if (!widths)
		return;
	for (size_t i = 0; i < t->nshown; i++) {
		widths[i] = (int)strlen(t->columns[t->shown[i]].name);
		json_array_foreach (t->rows, index, row) {
			int width = width_of(cell_text(t, t->shown[i],
						       json_array_get(row, t->shown[i]), text));

			widths[i] = width > widths[i] ? width : widths[i];
		}
	}
	print_row(t, widths, NULL);
	json_array_foreach (t->rows, index, row)
		print_row(t, widths, row);
	free(widths);
}

json_t *listing_rows_json(const struct listing *t)
{
	json_t *list = json_array(), *row, *object;
	size_t index;

	json_array_foreach (t->rows, index, row) {
		object = json_object();
		for (size_t i = 0; i < t->nshown; i++)
			json_object_set(object, t->columns[t->shown[i]].name,
					json_array_get(row, t->shown[i]));
		json_array_append_new(list, object);
	}
	return list;
}

int listing_print(struct listing *t, const char *name)
{
	if (call_has(t->call, 'J'))
		return call_print_object(t->call, name, listing_rows_json(t));
	if (call_has(t->call, 'H'))
		print_fields(t);
	else
		print_aligned(t);
	return 0;
}
