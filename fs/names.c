/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/names.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HASH_TEXT = 17 /* '~' and 16 digits */, NAME_ROOM = 8192 };

struct name_writer {
	char *at;
	size_t size;
	size_t length; /* of the whole */
};

static void put(struct name_writer *o, char c)
{
	if (o->length + 1 < o->size)
		o->at[o->length] = c;
	o->length++;
}

static void put_escaped(struct name_writer *o, char c)
{
	static const char hex[] = "0123456789ABCDEF";

	put(o, '%');
	put(o, hex[(unsigned char)c >> 4]);
	put(o, hex[(unsigned char)c & 15]);
}

static void put_name(struct name_writer *o, const char *name, bool whole, bool first)
{
	for (const char *c = name; *c; c++) {
		if (whole || (first && c == name) || *c == '/' || *c == '%' || *c == '@')
			put_escaped(o, *c);
		else
			put(o, *c);
	}
	if (!*name)
		put(o, '%');
}

static size_t finish(struct name_writer *o)
{
	if (o->size)
		o->at[o->length < o->size ? o->length : o->size - 1] = '\0';
	return o->length;
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

size_t names_escape(const char *name, char *out, size_t size)
{
	struct name_writer o = { out, size, 0 };

	put_name(&o, name, is_dots(name), false);
	return finish(&o);
}

size_t names_escape_first(const char *name, char *out, size_t size)
{
	struct name_writer o = { out, size, 0 };

	put_name(&o, name, is_dots(name), true);
	return finish(&o);
}

uint64_t names_hash(const char *text, uint64_t seed)
{
	/* FNV-1a; the mask keeps the low bits, so the high ones are mixed in. */
	uint64_t h = 0xcbf29ce484222325 ^ seed;

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 0x100000001b3;
	return h ^ h >> 32;
}

/* Writes the escaped name with its coordinate; returns the length of the whole. */
static size_t compose(const char *name, const char *coordinate, char *out, size_t size)
{
	struct name_writer o = { out, size, 0 };

	if (*coordinate) {
		if (*name)
			put_name(&o, name, false, false);
		put(&o, '@');
		put_name(&o, coordinate, false, false);
	} else {
		put_name(&o, name, is_dots(name), false);
	}
	return finish(&o);
}

/* Returns `length`, or a little less so that it does not cut an escape or a character of UTF-8.
 */
static size_t cut(const char *file, size_t length)
{
	if (length && file[length - 1] == '%')
		length -= 1;
	else if (length > 1 && file[length - 2] == '%')
		length -= 2;
	while (length && ((unsigned char)file[length] & 0xc0) == 0x80)
		length--;
	return length;
}

static void insert(struct names *n, uint32_t number)
{
	uint32_t slot = (uint32_t)names_hash(n->files[number], 0) & n->mask;

	while (n->slots[slot])
		slot = (slot + 1) & n->mask;
	n->slots[slot] = number + 1;
}

static size_t room_for(uint32_t count, names_source source, void *arg)
{
	size_t room = 1;

	for (uint32_t i = 0; i < count; i++) {
		const char *name, *coordinate;

		source(arg, i, &name, &coordinate);
		room += u64_min(compose(name, coordinate, NULL, 0), NAMES_FILE_MAX) + 1;
	}
	return room;
}

/* Adds a file name if it is shortened and `shortened` is true, or neither.  Unshortened names
 * are added first, so that a shortened name gives way to one that looks like it.
 */
static char *add(struct names *n, uint32_t number, const char *name, const char *coordinate,
		 char *block, bool shortened)
{
	char file[NAME_ROOM], whole[NAME_ROOM];
	size_t length = compose(name, coordinate, whole, sizeof(whole));

	assert(length < sizeof(whole));
	if (shortened != (length > NAMES_FILE_MAX))
		return block;
	strcpy(file, whole);
	for (uint64_t salt = 0; shortened && (!salt || names_find(n, file) >= 0); salt++) {
		sprintf(strcpy(file, whole) + cut(whole, NAMES_FILE_MAX - HASH_TEXT),
			"~%016" PRIx64, names_hash(whole, salt));
	}
	if (!strcmp(file, name)) {
		n->files[number] = name;
	} else {
		n->files[number] = strcpy(block, file);
		block += strlen(block) + 1;
	}
	insert(n, number);
	return block;
}

static int reserve(struct names *n, uint32_t count, size_t room)
{
	uint32_t slots = 16;

	while (slots / 2 < count)
		slots *= 2;
	*n = (struct names){ .count = count, .mask = slots - 1 };
	n->slots = calloc(slots, sizeof(*n->slots));
	n->files = calloc(count + 1, sizeof(*n->files));
	n->block = malloc(room);
	return n->slots && n->files && n->block ? 0 : -ENOMEM;
}

int names_init(struct names *n, uint32_t count, names_source source, void *arg)
{
	char *block;

	if (reserve(n, count, room_for(count, source, arg))) {
		names_fini(n);
		return -ENOMEM;
	}
	block = n->block;
	for (int shortened = 0; shortened < 2; shortened++) {
		for (uint32_t i = 0; i < count; i++) {
			const char *name, *coordinate;

			source(arg, i, &name, &coordinate);
			block = add(n, i, name, coordinate, block, shortened);
		}
	}
	return 0;
}

void names_fini(struct names *n)
{
	free(n->slots);
	free(n->files);
	free(n->block);
	*n = (struct names){ 0 };
}

int64_t names_find(const struct names *n, const char *file)
{
	uint32_t slot = (uint32_t)names_hash(file, 0) & n->mask;

	for (; n->slots[slot]; slot = (slot + 1) & n->mask) {
		if (!strcmp(n->files[n->slots[slot] - 1], file))
			return n->slots[slot] - 1;
	}
	return -ENOENT;
}

const char *names_get(const struct names *n, uint32_t number)
{
	assert(number < n->count);
	return n->files[number];
}
