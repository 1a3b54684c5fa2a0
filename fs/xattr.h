/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_XATTR_H
#define FS_XATTR_H

/* user.frag.name, shape, dtype, generation, tier, owners: of parameters and their states. */

#include "fs/tree.h"

/* Names that n has, each with its NUL.  *list is the caller's to free; returns its length;
 * -ENOMEM.
 */
int64_t xattr_list(struct tree *t, struct node n, char **list);

/* *value is the caller's to free; returns its length; -ENODATA: n has no such; -EOPNOTSUPP: of
 * a kind that no node has, tools may stop asking; -ENOMEM; as tree_state.
 */
int64_t xattr_get(struct tree *t, struct node n, const char *name, char **value);

#endif
