/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_XATTR_H
#define FS_XATTR_H

/* Extended attributes of parameters and their states: user.frag.name, shape, dtype, tensor,
 * generation, tier, owners.
 */

#include "fs/tree.h"

/* Lists the names of n's attributes, each with its NUL; *list is the caller's to free.  Returns
 * the list's length; -ENOMEM.
 */
int64_t xattr_list(struct tree *t, struct node n, char **list);

/* Makes the value of an attribute; *value is the caller's to free.  Returns its length.
 * -ENODATA: n has no such attribute.
 * -EOPNOTSUPP: no node has attributes of this namespace, so tools may stop asking.
 * -ENOMEM.
 * Errors of tree_state.
 */
int64_t xattr_get(struct tree *t, struct node n, const char *name, char **value);

#endif
