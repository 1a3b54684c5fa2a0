#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tree, as ls, find, du, tar, cp and grep see it.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
mount_fake "" fake:3000

# Each name is a file name, is listed once, and can be looked up.
[ "$(ls -A "$M/params" | wc -l)" = 3015 ] || fail "entries of params"
[ "$(ls -A "$M/params" | sort -u | wc -l)" = 3015 ] || fail "a name twice"
[ "$(stat -c %h "$M/params")" = 3017 ] || fail "links of params"
for name in %2E%2E .hidden odd%2Fname%2541%40x shard@tp=0 shard@tp=1 blocks.2999.mlp.weight; do
	[ -d "$M/params/$name" ] || fail "$name is not there"
done
[ "$(ls "$M/params" | grep -c '^0123456789.*~[0-9a-f]\{16\}$')" = 2 ] || fail "long names"
[ ! -e "$M/params/layers.0" ] && [ ! -e "$M/params/shard" ] || fail "something is there"

P=$M/params/layers.0.weight
[ "$(cat "$P/shape")" = "512 1024" ] && [ "$(cat "$P/dtype")" = bfloat16 ] &&
	[ "$(cat "$P/numel")" = 524288 ] && [ "$(cat "$P/group")" = 0 ] || fail "texts"
[ "$(cat "$M/params/frozen/group")" = none ] || fail "group of a frozen parameter"
[ "$(cat "$M/params/scale/shape")" = "" ] || fail "shape of a scalar"
[ "$(cat "$M/step" "$M/phase" "$M/generation" | tr '\n' ' ')" = "41 stable 0 " ] || fail "job"
grep -qx 'lost since 2009-02-13 23:31:30 UTC: its process has ended' "$M/ranks/2/state" || fail "state of a lost rank"
[ "$(cat "$M/groups/0/lr")" = 0.001 ] && [ "$(cat "$M/groups/1/kind")" = zero2 ] || fail "group"
[ "$(grep fp32 "$P/fragments" | tail -n 1 | tr '\t' ' ')" = "1 fp32 swap 0.0 0 262144 262144" ] || fail "fragments"

# Keys that are names of the mount's own files, or cannot be file names.
[ "$(ls -A "$M/params/keys" | grep -v '\.npy$' | LC_ALL=C sort | tr '\n' ' ')" = \
	"%2E %73hape a%2Enpy dtype fragments group group_index numel shape t	n x%2Fy z " ] || fail "odd keys"
[ "$(cut -f 2 "$M/params/keys/fragments" | sort -u | tr '\n' ' ')" = '. a.npy shape state t%09n x/y z ' ] ||
	fail "odd keys in fragments: $(cat "$M/params/keys/fragments")"
cat "$M/groups/0/%6Bind" >"$T/out" || fail "a hyper named as a file of ours"

# st_size is right for every file, which tools trust.
find "$M/params/layers.0.bias" "$M/groups" "$M/.frag" "$M/ranks/0/host" -type f |
while read -r file; do
	[ "$(stat -c %s "$file")" = "$(cat "$file" | wc -c)" ] || fail "$file: st_size"
done
[ "$(stat -c '%s %b %o' "$P/fp32")" = "2097152 4096 1048576" ] || fail "size, blocks, block size"
[ "$(du -B1 "$P/fp32" | cut -f1)" = 2097152 ] || fail "du"
[ "$(stat -c '%a %A' "$P/fp32")" = "444 -r--r--r--" ] || fail "mode of a state"
[ "$(stat -c %u "$P/fp32")" = "$(id -u)" ] || fail "owner"

# A file has one inode whichever way it is found, and after the kernel has forgotten it.
inode=$(stat -c %i "$P/fp32")
[ "$(ls -i "$P" | sed -n 's/^ *\([0-9]*\) fp32$/\1/p')" = "$inode" ] || fail "inode of readdir"
unmount
mount_fake "" fake:3000
[ "$(stat -c %i "$P/fp32")" = "$inode" ] || fail "inode of another mount"
[ "$(find "$M" -printf '%i\n' | sort | uniq -d | wc -l)" = 0 ] || fail "an inode twice"

# Links of groups lead to the parameters.
[ "$M/groups/1/params/layers.0.bias" -ef "$M/params/layers.0.bias" ] || fail "link"
[ ! -e "$M/groups/0/params/layers.0.bias" ] || fail "a parameter in two groups"

# The ranks that share a group, and the place of a parameter in it.
printf 'rank	shard	replica\n0	0	0\n1	1	0\n' | cmp - "$M/groups/1/ranks" || fail "$(cat "$M/groups/1/ranks")"
[ "$(cat "$M/params/layers.0.bias/group_index" "$M/params/scale/group_index" "$M/params/frozen/group_index" |
	tr '\n' ' ')" = "0 1 none " ] || fail "places in groups"

# The states that a rank holds.
[ "$(ls "$M/ranks/1/params" | wc -l)" = 3014 ] || fail "parameters of rank 1" # .hidden not shown
[ "$(ls -A "$M/ranks/2/params" | wc -l)" = 0 ] || fail "parameters of a rank without any"
[ "$(ls "$M/ranks/2/partitions")" = 0.0 ] || fail "partitions of rank 2"
[ "$(ls "$M/ranks/0/partitions/1.0")" = fp32 ] || fail "states of a partition"
refused "Input/output error" ls "$M/ranks/2/partitions/0.0"
refused "Input/output error" cp -r "$M/ranks/2" "$T/copy"
rm -r "$T/copy"
[ ! -e "$M/ranks/3" ] && [ ! -e "$M/ranks/00" ] && [ ! -e "$M/ranks/0/partitions/1.1" ] ||
	fail "ranks that are not there"

# Whole copies, also of parameters with odd names.
for name in layers.0.bias %2E%2E keys odd%2Fname%2541%40x; do
	within 60 cp -r "$M/params/$name" "$T/copy"
	diff -r "$M/params/$name" "$T/copy" || fail "cp -r $name"
	rm -rf "$T/copy"
done
mkdir "$T/tar"
within 60 tar -C "$M" -cf - params/tail groups .frag/version | tar -C "$T/tar" -xf - || fail tar
diff -r "$M/params/tail" "$T/tar/params/tail" || fail "what tar took"
within 60 grep -rl bfloat16 "$M/params/layers.0.weight" | grep -q dtype || fail "grep -r"
within 60 df "$M" >/dev/null || fail df
unmount
