#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mount.fragfs calls the fragfs beside it as mount(8) expects, and exits as mount(8) expects.
set -eu
cd "$TMPDIR"
cp "$top_builddir/mount.fragfs" .
cat >fragfs <<'END'
#!/bin/sh
echo "$@" >called
exit "${FRAGFS_EXIT:-0}"
END
chmod +x fragfs

expect() { # expect STATUS CALLED ARGUMENT...
	status=$1 called=$2
	shift 2
	: >called
	got=0
	./mount.fragfs "$@" >out 2>&1 || got=$?
	[ "$got" = "$status" ] || { echo "mount.fragfs $*: exit $got, not $status"; cat out; exit 1; }
	[ "$(cat called)" = "$called" ] ||
		{ echo "mount.fragfs $*: called fragfs $(cat called), not $called"; exit 1; }
}

expect 0 "-o ro -- h:1 /m" h:1 /m
expect 0 "-o ro,allow_other -- h:1 /m" h:1 /m -o rw,_netdev,allow_other
expect 0 "-o rw,nosuid -- h:1 /m" -n -s h:1 /m -o rw,edit -t fragfs -o nosuid
expect 0 "" -f h:1 /m -o ro
expect 0 "-o ro -- h:1 /m" -v h:1 /m
grep -q "^$TMPDIR/fragfs -o ro -- h:1 /m\$" out
expect 0 "-o ro,key=/a\\,b -- h:1 /m" h:1 /m -o 'key="/a,b"'
expect 0 "-o ro -- -c /m" -- -c /m
expect 1 "" h:1
expect 1 "" h:1 /m -Q
export FRAGFS_EXIT=1
expect 32 "-o ro -- h:1 /m" h:1 /m
export FRAGFS_EXIT=2
expect 1 "-o ro,bad -- h:1 /m" h:1 /m -o bad
rm fragfs
mkdir fragfs
expect 2 "" h:1 /m
