/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_TORCH_UNSUPPORTED_H
#define ENGINE_CHECKPOINT_PARSE_TORCH_UNSUPPORTED_H

/* Tensors whose values are not the bytes of a storage in some order: a pickle has them as
 * objects, and nothing shows them.
 */

#include "engine/checkpoint/parse/pickle.h"

enum { TORCH_UNSUPPORTED_MAX = 200 };

/* Why an object that is a tensor is not shown: "it is sparse".  false: it is no such object. */
bool torch_unsupported(const struct pickle *p, uint32_t node, char why[TORCH_UNSUPPORTED_MAX]);

/* The attributes of one of a class of its own, which may be tensors; PICKLE_NOTHING. */
uint32_t torch_unsupported_attributes(const struct pickle *p, uint32_t node);

#endif
