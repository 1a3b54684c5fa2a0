#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# quickstart does nothing in a folder that was configured itself, and one line says what to do.
set -eu
cp "$top_srcdir/quickstart" "$TMPDIR"
cd "$TMPDIR"
touch config.status
status=0
./quickstart build >out 2>&1 || status=$?
[ "$status" = 1 ] && [ "$(wc -l <out)" = 1 ] && grep -q '^quickstart: .* make distclean first$' out ||
	{ echo "exit $status:"; cat out; exit 1; }
[ ! -e build ] || { echo "it has begun all the same"; exit 1; }
status=0
./quickstart nonsense >out 2>&1 || status=$?
[ "$status" = 2 ] && grep -q '^usage: ./quickstart' out || { echo "nonsense: exit $status:"; cat out; exit 1; }
