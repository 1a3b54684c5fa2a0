/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_CHECKPOINT_FORMATS_LEGACY_WRITER_H
#define TESTS_UNIT_CHECKPOINT_FORMATS_LEGACY_WRITER_H

/* Files of torch.save in its container before zip, value by value, so that a test can say
 * anything in them:
 *
 *	legacy_begin(folder, name)
 *	  legacy_dict ...	a value goes to the innermost container, in a dict after its key
 *	    legacy_key, legacy_int ...
 *	  legacy_up
 *	legacy_end
 */

#include "engine/frag.h"

void legacy_begin(const char *folder, const char *name);
void legacy_end(void);

void legacy_dict(void);
void legacy_list(void);
void legacy_up(void);

void legacy_key(const char *key);
void legacy_key_of(const char *bytes, size_t size);
void legacy_key_int(int64_t key);
void legacy_int(int64_t value);
void legacy_real(double value);
void legacy_text(const char *text);
/* torch.Size */
void legacy_size(unsigned ndim, const int64_t *shape);
/* A tensor with a storage of its own, whose i-th element is first + i. */
void legacy_tensor(enum frag_dtype dtype, unsigned ndim, const int64_t *shape, float first);
void legacy_vector(enum frag_dtype dtype, int64_t numel, float first);

#endif
