/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_TORCH_UNSUPPORTED_H
#define ENGINE_CHECKPOINT_PARSE_TORCH_UNSUPPORTED_H

/* Tensors that are not shown, because their values are not simply bytes of a storage: sparse,
 * quantized, nested and meta ones, and subclasses.  A pickle has them as objects.
 */

#include "engine/checkpoint/parse/pickle.h"

enum { TORCH_UNSUPPORTED_MAX = 200 };

/* Prints the reason why a tensor is not shown, such as "it is sparse".  Returns false if the
 * node is no such tensor.
 */
bool torch_unsupported(const struct pickle *p, uint32_t node, char why[TORCH_UNSUPPORTED_MAX]);

/* Returns the attributes of a tensor of a subclass, which may be tensors; PICKLE_NOTHING: none.
 */
uint32_t torch_unsupported_attributes(const struct pickle *p, uint32_t node);

#endif
