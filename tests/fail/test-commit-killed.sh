#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An edit of a checkpoint of DeepSpeed (five files; fp32, the model's bf16, CRCs), killed at every system call: all files
# are old or all are new, once it is opened again.  Some of that through real mounts.
. "$top_srcdir/tests/mount/lib.sh"
PATH=$top_builddir/tests/fail:$PATH

# In memory, where a sync costs nothing, the loop is quick.
work=$T
if [ -d /dev/shm ] && [ -w /dev/shm ]; then
	work=$(mktemp -d /dev/shm/frag-test.XXXXXX)
fi
at_end() {
	drop_mount "$M" || :
	rm -rf "$work"
}

gzip -dc "$top_srcdir/tests/data/checkpoints/ds0.19.8/z2-bf16-w4.tar.gz" | tar -xf - -C "$work"
C=$work/z2-bf16-w4
tag=$C/$(cat "$C/latest")
param=emb.weight
yes edited | head -c "$(stat -c %s "$C/values/params/$param/fp32")" >"$T/bytes"

cp -R "$tag" "$T/old"
kill-commit write "$C" $param fp32 "$T/bytes" || fail "cannot edit"
cp -R "$tag" "$T/new"
for file in "$T"/old/*; do
	cmp -s "$file" "$T/new/${file##*/}" || echo "${file##*/}"
done >"$T/changed"
[ "$(wc -l <"$T/changed")" -ge 3 ] || fail "the edit changes too little: $(cat "$T/changed")"
if command -v python3 >/dev/null 2>&1; then
	for file in "$T"/new/*.pt; do
		python3 -m zipfile -t "$file" >"$T/out" 2>&1 && ! grep -q corrupted "$T/out" || fail "$file: $(cat "$T/out")"
	done
fi

restore() {
	for file in "$T"/old/*; do
		cat "$file" >"$tag/${file##*/}"
	done
}

restore
status=0
kill-commit all "$C" $param fp32 "$T/bytes" "$tag" "$T/old" "$T/new" >"$T/kills" || status=$?
[ $status != 77 ] || skip "ptrace is forbidden here"
[ $status = 0 ] || fail "kill-commit: status $status"
cat "$T/kills"
kills=$(sed 's/ .*//' "$T/kills")
[ "$kills" -gt 50 ] || fail "only $kills kills"

# The same edit beside the files, then written into them.
restore
O=$work/overlay
mkdir "$O"
(cd "$tag" && sha256sum ./*) >"$T/sums"
kill-commit beside "$C" $param fp32 "$T/bytes" "$O" "$C/values/params/$param/fp32" >"$T/beside" || fail "kill-commit: beside"
cat "$T/beside"
[ "$(sed 's/ .*//' "$T/beside")" -gt 10 ] || fail "only $(cat "$T/beside")"
(cd "$tag" && sha256sum --check --quiet --strict "$T/sums") || fail "an edit beside the files changes them"
rm "$O"/*
cp -p "$tag"/* "$T/old"
kill-commit settle "$C" $param fp32 "$T/bytes" "$O" "$tag" "$T/old" "$T/new" >"$T/settle" || fail "kill-commit: settle"
cat "$T/settle"
[ "$(sed 's/ .*//' "$T/settle")" -gt 50 ] || fail "only $(cat "$T/settle")"
[ -z "$(ls -A "$O")" ] || fail "the overlay is not empty"

is_all() {
	for file in "$T/$1"/*; do
		cmp -s "$file" "$tag/${file##*/}" || return 1
	done
}

list_times() {
	stat -c '%n %.Y' "$tag"/*
}

need_fuse
restore
# Root undoes what another user's files have of an edit, and gives them their times back.
[ "$(id -u)" != 0 ] || chown -R 65534 "$C"
for part in 1 3 5 6 7; do
	list_times >"$T/times"
	status=0
	kill-commit kill "$C" $param fp32 "$T/bytes" $((kills * part / 8)) || status=$?
	[ $status = 128 ] || fail "not killed: status $status"
	within 60 fragfs "$C" "$M" $([ $part = 3 ] || echo -o rw) || fail "fragfs: status $?"
	if is_all old; then
		list_times | diff "$T/times" - || fail "undone, and another time"
		same "$M/params/$param/fp32" "$C/values/params/$param/fp32"
	else
		is_all new || fail "killed at $part of 8: neither old nor new"
		same "$M/params/$param/fp32" "$T/bytes"
	fi
	unmount
	[ ! -e "$tag/.fragfs-journal" ] || fail "the journal is still there"
	restore
done
