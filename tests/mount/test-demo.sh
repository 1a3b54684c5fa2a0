#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The demo runs through when there is no terminal: its commands work and its edit changes the loss.
. "$top_srcdir/tests/lib.sh"
need_dev_fuse
sh "$top_srcdir/docs/examples/demo.sh" "$top_builddir" </dev/null
