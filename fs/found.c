/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/found.h"

#include "engine/base/thread.h"
#include "fs/names.h"

#include <errno.h>
#include <string.h>

void found_init(struct found *f)
{
	*f = (struct found){ .room = 0 };
	pthread_mutex_init(&f->lock, NULL);
}

void found_fini(struct found *f)
{
	for (uint32_t i = 0; i < f->count; i++)
		free(f->names[i].text);
	free(f->names);
	free(f->heads);
	pthread_mutex_destroy(&f->lock);
}

static uint32_t *head_of(struct found *f, uint64_t dir, const char *text)
{
	return &f->heads[names_hash(text, dir) & (f->room - 1)];
}

static void insert(struct found *f, uint32_t number)
{
	struct found_name *n = &f->names[number];
	uint32_t *head = head_of(f, n->dir, n->text);

	n->next = *head;
	*head = number + 1;
}

static int grow(struct found *f)
{
	uint32_t room = f->room ? 2 * f->room : 64;
	uint32_t *heads = room > f->room ? calloc(room, sizeof(*heads)) : NULL;
	struct found_name *names = heads ? reallocarray(f->names, room, sizeof(*names)) : NULL;

	if (!names) {
		free(heads);
		return -ENOMEM;
	}
	free(f->heads);
	f->heads = heads;
	f->names = names;
	f->room = room;
	for (uint32_t i = 0; i < f->count; i++)
		insert(f, i); /* found_add grows only when no number is free */
	return 0;
}

int found_add(struct found *f, uint64_t dir, const char *text, uint32_t slot, uint32_t *number)
{
	uint32_t i;
	char *copy;

	LOCKED(&f->lock);
	for (i = f->room ? *head_of(f, dir, text) : 0; i; i = f->names[i - 1].next) {
		struct found_name *n = &f->names[i - 1];

		if (n->dir == dir && !strcmp(n->text, text)) {
			n->uses++;
			n->slot = slot;
			*number = i - 1;
			return 0;
		}
	}
	copy = strdup(text);
	if (!copy || (!f->free && f->count == f->room && grow(f))) {
		free(copy);
		return -ENOMEM;
	}
	i = f->free ? f->free - 1 : f->count++;
	if (f->free)
		f->free = f->names[i].next;
	f->names[i] = (struct found_name){ .dir = dir, .slot = slot, .uses = 1, .text = copy };
	insert(f, i);
	f->used++;
	*number = i;
	return 0;
}

void found_use(struct found *f, uint32_t number)
{
	LOCKED(&f->lock);
	assert(number < f->count && f->names[number].text);
	f->names[number].uses++;
}

void found_drop(struct found *f, uint32_t number, uint64_t n)
{
	struct found_name *name;
	uint32_t *at;

	LOCKED(&f->lock);
	if (number >= f->count || !f->names[number].text)
		return;
	name = &f->names[number];
	name->uses -= u64_min(n, name->uses);
	if (name->uses)
		return;
	at = head_of(f, name->dir, name->text);
	while (*at != number + 1)
		at = &f->names[*at - 1].next;
	*at = name->next;
	free(name->text);
	*name = (struct found_name){ .next = f->free };
	f->free = number + 1;
	f->used--;
}

bool found_get(struct found *f, uint32_t number, struct found_name *name)
{
	LOCKED(&f->lock);
	if (number >= f->count || !f->names[number].text)
		return false;
	*name = f->names[number];
	return true;
}
