/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_CHECKPOINT_PARSE_TORCH_EXPECT_H
#define TESTS_UNIT_CHECKPOINT_PARSE_TORCH_EXPECT_H

/* Files of torch.save against what tests/oracle/make-torchfiles.py says is in them. */

#include "engine/checkpoint/parse/torchfile.h"

/* Compares NAME.pt with NAME.expect of the folder; the number of lines compared. */
int check_expected(const char *folder, const char *name);

/* All of a folder like oracle/: the verdicts of bad/manifest.json and st/manifest.json, and
 * that every other .pt, .metadata and what that names can be read.  Prints what is wrong; how
 * much that is.
 */
int check_oracle(const char *folder);

#endif
