/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/pages.h"

#include <errno.h>

enum { REFUSED_MS = 1000 };

/* ---- generations ---- */

/* Returns the newest open file of h's inode that has read nothing yet; else h. */
static struct handle *newest_unread(struct handle *h)
{
	struct handle *other;

	LIST_FOREACH (other, &h->fs->handles, entry)
		if (tree_node_is_same(other->node, h->node) && !other->write_buffer &&
		    !other->was_read)
			return other;
	return h;
}

/* Makes o read from source's file, unless o has read from its own. */
static void join(struct handle *o, struct handle *source, bool is_fresh)
{
	pthread_mutex_lock(&o->lock);
	if (o == source ||
	    (is_fresh && !o->write_buffer && !o->was_read && o->bytes == source->bytes))
		o->pages = PAGES_USED;
	else
		o->pages = PAGES_REFUSED;
	if (o->pages == PAGES_USED && o != source)
		handle_ref(o->newer = source);
	pthread_mutex_unlock(&o->lock);
}

/* Makes h, whose inode is in use, read from the engine's file that the inode's users read. */
static void join_users(struct handle *h)
{
	struct handle *user;

	LIST_FOREACH (user, &h->fs->handles, entry)
		if (user->pages == PAGES_USED && tree_node_is_same(user->node, h->node))
			break;
	if (user)
		join(h, user->newer ? user->newer : user, true);
}

/* ---- inodes ---- */

static bool are_in_use(const struct fs *fs, struct node n)
{
	const struct handle *h;

	LIST_FOREACH (h, &fs->handles, entry)
		if (h->pages != PAGES_UNUSED && tree_node_is_same(h->node, n))
			return true;
	return false;
}

/* Finds the refusal of the thread's open(2) of a file; NULL: there is none. */
static struct pages_refusal *find_refusal(struct pages *p, struct node n, pid_t opener)
{
	n.alias = 0;
	for (unsigned i = 0; i < PAGES_REFUSALS; i++)
		if (p->refusals[i].inode == tree_inode(n) && p->refusals[i].opener == opener)
			return &p->refusals[i];
	return NULL;
}

/* Finds a refusal that is free, or whose thread has not opened the file again; NULL: none. */
static struct pages_refusal *unused_refusal(struct pages *p)
{
	for (unsigned i = 0; i < PAGES_REFUSALS; i++)
		if (!p->refusals[i].inode ||
		    p->refusals[i].since_ms + REFUSED_MS < monotonic_ms())
			return &p->refusals[i];
	return NULL;
}

/* An opener that was refused gets an inode that no open file has, even if the first inode is
 * free by now: the kernel tries only once more.
 */
void pages_choose_inode(struct fs *fs, struct node *n, pid_t opener)
{
	if (!tree_node_has_aliases(*n))
		return;
	pthread_mutex_lock(&fs->lock);
	if (find_refusal(&fs->pages, *n, opener) || are_in_use(fs, *n))
		n->alias = 1 + fs->pages.aliases++ % NODE_ALIAS_MAX;
	pthread_mutex_unlock(&fs->lock);
}

int pages_admit(struct handle *h, pid_t opener)
{
	struct pages *p = &h->fs->pages;
	struct pages_refusal *refusal = find_refusal(p, h->node, opener), *unused = NULL;
	bool in_use = are_in_use(h->fs, h->node);
	struct node n = h->node;

	n.alias = 0;
	if (in_use && tree_node_has_aliases(n) && !refusal)
		unused = unused_refusal(p);
	if (unused) {
		*unused = (struct pages_refusal){ tree_inode(n), opener, monotonic_ms() };
		return -ESTALE;
	}
	if (in_use)
		h->pages = PAGES_REFUSED;
	/* all reads of a file without direct_io go through pages */
	if (in_use && (refusal || h->exported))
		join_users(h);
	if (refusal)
		refusal->inode = 0;
	return 0;
}

/* ---- reading ---- */

int pages_use(struct handle *h)
{
	struct handle *other, *source;
	bool used, is_fresh = !h->was_read;

	pthread_mutex_lock(&h->fs->lock);
	source = h->pages != PAGES_UNUSED || h->write_buffer ? NULL
		 : is_fresh                                  ? newest_unread(h)
							     : h;
	if (source)
		LIST_FOREACH (other, &h->fs->handles, entry)
			if (tree_node_is_same(other->node, h->node) && !other->write_only)
				join(other, source, is_fresh);
	used = h->pages == PAGES_USED;
	pthread_mutex_unlock(&h->fs->lock);
	return used ? 0 : -EINVAL;
}
