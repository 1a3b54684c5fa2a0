#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The demo runs through when there is no terminal: its commands work and its edit changes the loss.
set -u
(: <>/dev/fuse) 2>/dev/null || { echo "needs /dev/fuse"; exit 77; }
sh "$top_srcdir/docs/examples/demo.sh" "$top_builddir" </dev/null
