#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Edits beside a checkpoint (-o overlay=DIR): its files stay unchanged until fragctl commit, which makes of them the
# files that DeepSpeed loaded.  TEST_CASES: names of cases, or their ends.
. "$top_srcdir/tests/mount/lib.sh"
. "$top_srcdir/tests/mount/edits.sh"
need_fuse
export LC_ALL=C
O=$T/overlay

mount_overlay() {
	within 60 fragfs "$C" "$M" -o "overlay=$O" || fail "$C: fragfs: status $?"
}

sums() {
	(cd "$C" && find . -type f -exec sha256sum {} + | sort)
}

states() {
	(cd "$M" && find . \( -path '*/params/*' -o -path '*/buffers/*' -o -path '*/groups/*' \) -type f \
		-exec sha256sum {} + | sort)
}

check_case() {
	C=$(basename "$1" .edits)
	gzip -dc "${1%.edits}.tar.gz" | tar -xf -
	sums >"$T/before"
	mount_overlay
	make_edits "$1"
	check_edits
	states >"$T/states"
	unmount
	sums >"$T/after"
	same "$T/before" "$T/after"
	mount_overlay
	check_edits
	states >"$T/states-again"
	diff "$T/states" "$T/states-again" || fail "$C: other states than before"
	refused "is the overlay of a mount" fragctl commit "$O"
	refused "is the overlay of a mount" fragctl discard "$O"
	unmount
	fragctl commit --json "$O" >"$T/committed" || fail "$C: fragctl commit: status $?"
	grep -q '"edits": [1-9]' "$T/committed" || fail "$C: $(cat "$T/committed")"
	check_files "$1"
	[ -z "$(ls -A "$O")" ] || fail "$C: the overlay is not empty"
	within 60 fragfs "$C" "$M" || fail "$C: fragfs: status $?"
	states >"$T/states-again"
	diff "$T/states" "$T/states-again" || fail "$C: other states than before"
	unmount
}

checked=0
[ "$sanitizer" = no ] || : "${TEST_CASES:=z3-bf16-w3-sub}"
for name in ${TEST_CASES:-z2-bf16-w4-rr z3-bf16-w3-sub z0-fp16-w1}; do
	for edits in "$cases"/*/*"$name".edits; do
		check_case "$edits"
		rm -r "$C"
		checked=$((checked + 1))
	done
done
[ $checked -gt 0 ] || fail "no case"

# ---- one edit: what commands print, and fragctl discard ----

C=$T/z2-bf16-w4
gzip -dc "$cases"/ds0.19.8/z2-bf16-w4.tar.gz | tar -xf -
P=params/emb.weight/fp32
sums >"$T/before"
mount_overlay
[ "$(cat "$M/.frag/options")" = "rw,overlay=$O" ] || fail "$(cat "$M/.frag/options")"
grep -qx "overlay $O" "$M/.frag/config" && grep -qx "writable yes" "$M/.frag/config" || fail "$(cat "$M/.frag/config")"
cat "$C/values/params/emb.weight/exp_avg" >"$M/$P" || fail "cannot edit"
same "$M/$P" "$C/values/params/emb.weight/exp_avg"
fragctl overlay "$O" >"$T/told"
grep -q "mounted *yes" "$T/told" && grep -q "edits *1$" "$T/told" && grep -q "checkpoint *$C/global_step3" "$T/told" ||
	fail "$(cat "$T/told")"
fragctl overlay --json "$O" | grep -q '"files": \[' || fail "$(fragctl overlay --json "$O")"
mkdir "$T/other"
unmount
mount_overlay
grep -qx "edits 1" "$M/.frag/source" || fail "mounted again: $(cat "$M/.frag/source")"
refused "is the overlay of a mount, or being committed, by process [0-9]" fragfs "$C" "$T/other" -o "overlay=$O"
refused "so that it cannot be edited" fragfs "$C" "$T/other" -o rw
refused "is for a mount that is not ro" fragfs "$C" "$T/other" -o "overlay=$O,ro"
within 60 fragfs "$C" "$T/other" -o "overlay=$T/second" || fail "two overlays: status $?"
same "$T/other/$P" "$C/values/$P"
within 60 fusermount3 -u "$T/other" || fail "cannot unmount"
unmount
fragctl discard --json "$O" >out
grep -qF "\"path\": \"$O\"" out || fail "discard --json: $(cat out)"
refused "there are no edits in it" fragctl commit "$O"
refused "there are no edits in it" fragctl discard "$O"
mount_overlay
same "$M/$P" "$C/values/$P"
unmount
sums >"$T/after"
same "$T/before" "$T/after"

# ---- folders that are refused, a checkpoint that has changed ----

refused "is in the checkpoint's folder" fragfs "$C" "$M" -o "overlay=$C/global_step3/overlay"
[ ! -e "$C/global_step3/overlay" ] || fail "a refused mount has left the folder that it made"
refused "cannot mount on" fragfs "$C" "$M" -o "overlay=$T/made,context=nonsense"
[ ! -e "$T/made" ] || fail "a mount that failed has left the folder that it made: $(ls -A "$T/made")"
refused "there are other things in it" fragfs "$C" "$M" -o "overlay=$C/values"
refused "it is no overlay, and not empty" fragctl overlay "$C/values"
refused "No such file or directory" fragfs "$C" "$M" -o "overlay=$T/no/where"
refused "neither a file or folder that is here, nor a job of this host, nor HOST:PORT" fragfs nowhere "$M"
mkdir "$T/unfinished"
: >"$T/unfinished/latest"
refused "latest is empty" fragfs "$T/unfinished" "$M"
: >"$T/unfinished/model.safetensors"
rm "$T/unfinished/latest"
refused "model.safetensors: it is empty" fragfs "$T/unfinished" "$M"
refused 'expected: fragctl commit \[-J\] DIR' fragctl commit
ln -s no/where "$T/astray"
refused "$T/astray: No such file or directory" fragfs "$C" "$M" -o "overlay=$T/astray"
mount_overlay
cat "$C/values/params/emb.weight/exp_avg" >"$M/$P" || fail "cannot edit"
unmount
refused "cannot mount on" fragfs "$C" "$M" -o "overlay=$O,context=nonsense"
fragctl overlay "$O" | grep -q "edits *1$" || fail "a mount that failed has taken the edits of before"
touch "$C/global_step3/mp_rank_00_model_states.pt"
refused "mp_rank_00_model_states.pt has changed since the overlay .*Stale file handle.* edits of $C/global_step3)" fragctl commit "$O"
refused "mp_rank_00_model_states.pt has changed since the overlay .*Stale file handle" fragfs "$C" "$M" -o "overlay=$O"
[ "$(wc -l <"$T/out")" = 1 ] || fail "more than one line"
head -c 200 "$O/fragfs-overlay" >"$T/cut"
cp "$T/cut" "$O/fragfs-overlay"
refused "fragfs-overlay is damaged at byte" fragfs "$C" "$M" -o "overlay=$O"
refused "fragfs-overlay is damaged at byte" fragctl overlay "$O"
fragctl discard "$O" || fail "a damaged overlay cannot be discarded"
mount_overlay
unmount

# ---- one file, by a link, in its own folder ----

mkdir "$T/st"
{
	printf '\110\0\0\0\0\0\0\0'
	printf '%-72s' '{"w":{"dtype":"F32","shape":[1000],"data_offsets":[0,4000]}}'
	head -c 4000 /dev/zero
} >"$T/st/x.safetensors"
cp "$T/st/x.safetensors" "$T/zeros"
head -c 4000 /dev/urandom >"$T/w"
ln -s "$T/st/x.safetensors" "$T/link.safetensors"
C=$T/link.safetensors
O=$T/st/overlay
mount_overlay
cp "$T/w" "$M/params/w/fp32" || fail "cannot edit safetensors"
same "$M/params/w/fp32" "$T/w"
unmount
same "$T/st/x.safetensors" "$T/zeros"
cp -a "$T/st" "$T/moved"
fragctl commit "$O" || fail "cannot commit safetensors"
tail -c 4000 "$T/st/x.safetensors" | cmp - "$T/w" || fail "the file has other bytes"
fragctl commit "$T/moved/overlay" "$T/moved" || fail "cannot commit to a copy"
same "$T/st/x.safetensors" "$T/moved/x.safetensors"
