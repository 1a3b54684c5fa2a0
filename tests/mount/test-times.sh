#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A state's mtime is that of its generation, or of the last edit of a checkpoint, so that cp -u, find -newer and tar -g
# find changed states.  Its other times stay, so that tar(1) does not take a file of a job that trains for a truncated
# one.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"

mtime() {
	stat -c %.Y "$1"
}
is_other() { # is_other FILE THAN
	[ "$(mtime "$1")" != "$2" ]
}

# The clock of files moves by ticks of some milliseconds.
now_is_after() {
	touch now
	[ now -nt "$1" ]
}

# edited FILE OTHER: an edit of FILE sets its time to now, and soon that of OTHER, which changes with it.
edited() {
	before=$(mtime "$1") other=$(mtime "$2") changed=$(stat -c %.Z "$1")
	cp "$1" copied
	cat "$1" >new
	printf '\1\2\3\4' | dd of=new conv=notrunc status=none
	touch stamp
	wait_until 60 now_is_after stamp || fail "the clock of files stands"
	cat new >"$1" || fail "cannot edit $1"
	is_other "$1" "$before" || fail "$1: its mtime stays"
	[ "$(find "$1" -newer stamp)" = "$1" ] || fail "$1: it is not newer: $(mtime "$1"), $(mtime stamp)"
	cp -u "$1" copied
	same copied new
	wait_until 60 is_other "$2" "$other" || fail "$2: its mtime stays"
	[ "$(stat -c %.Z "$1")" = "$changed" ] || fail "$1: its ctime has moved"
}

# ---- a job that stands: only edits change times ----

start_job 0 2 small
mount_job rw
F=$M/params/embed.weight/fp32
edited "$F" "$M/params/two/fp32.npy"
before=$(mtime "$F")
tar -c -f first.tar -g snapshot -C "$M/params" embed.weight || fail "tar"
cp snapshot snapshot.0
tar -c -f second.tar -g snapshot.0 -C "$M/params" embed.weight || fail "tar"
! tar -tf second.tar | grep -q fp32 || fail "unchanged, and saved again: $(tar -tf second.tar)"
[ "$(mtime "$F")" = "$before" ] || fail "its mtime moves while nothing changes"
edited "$F" "$M/ranks/0/params/embed.weight/fp32"
tar -c -f second.tar -g snapshot -C "$M/params" embed.weight || fail "tar"
tar -tf second.tar | grep -q 'fp32$' || fail "changed, and not saved again"
unmount
end_job

# ---- a job that trains ----

FRAG_PLAIN=1 FRAG_JOB_ID=times-$$ RANK=0 WORLD_SIZE=1 "$top_builddir/tests/fail/tear-job" 2 100000 >train.log 2>&1 &
started $!
wait_until 60 grep -q '^127' train.log || fail "no job"
within 60 "$top_builddir/fragfs" "$(grep -m 1 '^127' train.log)" "$M" -o plain || fail "fragfs: $?"
for file in params/p0/fp32 params/p0/exp_avg.npy ranks/0/params/p0/fp32 \
	export/universal/mp_rank_00_model_states.pt export/universal/zero/p0/step.pt; do
	wait_until 60 is_other "$M/$file" "$(mtime "$M/$file")" || fail "$file: its mtime stays"
done
for round in 1 2 3; do
	within 60 tar -cf train.tar --exclude="grad*" -C "$M" params || fail "tar of a job that trains: $?"
done
unmount

# ---- a hyper-parameter's time is that of its value: else editors take the file for one that another program has
# written ----

FRAG_JOB_ID=lr-$$ RANK=0 WORLD_SIZE=1 "$top_builddir/docs/examples/train" --forever --pause-ms 10 >lr.log 2>&1 &
trainer=$!
started $trainer
wait_until 60 grep -q '^train: address' lr.log || fail "no job: $(cat lr.log)"
within 60 fragfs "$(sed -n 's/^train: address //p' lr.log)" "$M" -o rw || fail "fragfs: $?"
lr=$M/groups/0/lr
before=$(mtime "$lr") state=$(ls "$M"/params/*/fp32 | head -n 1)
wait_until 60 is_other "$state" "$(mtime "$state")" || fail "it does not train"
sleep 1.1 # the kernel's attributes are a second old at most
[ "$(mtime "$lr")" = "$before" ] || fail "$lr: its mtime moves with the job"
echo 0.25 >"$lr" || fail "cannot edit $lr"
wait_until 60 is_other "$lr" "$before" || fail "$lr: its mtime stays"
unmount
kill $trainer
wait $trainer || :

# ---- checkpoints ----

gzip -dc "$top_srcdir/tests/data/checkpoints"/*/z2-bf16-w4.tar.gz | tar -xf -
C=$T/z2-bf16-w4
find "$C" -name '*.pt' -exec touch -d '2026-01-02 03:04:05.678' {} +
F=$M/params/emb.weight/fp32
mount_checkpoint() {
	within 60 fragfs "$C" "$M" ${1:+-o "$1"} || fail "fragfs $1: $?"
}
newest() {
	find "$C" -name '*.pt' -exec stat -c %.Y {} + | sort -n | tail -n 1
}

mount_checkpoint
of_files=$(mtime "$F")
find "$C" -name '*.pt' -exec stat -c %.Y {} + | grep -qx "$of_files" || fail "$of_files is of no file"
for file in params/emb.weight/shape params/emb.weight groups/0/lr groups/0/kind step params .; do
	[ "$(mtime "$M/$file")" = "$(newest)" ] || fail "$file: $(mtime "$M/$file"), and the files $(newest)"
done
is_other "$M/.frag/log" "$(newest)" || fail "the log has the checkpoint's time"
unmount
mount_checkpoint overlay=laid
[ "$(mtime "$F")" = "$of_files" ] || fail "another mount, another time"
edited "$F" "$M/params/emb.weight/bf16"
unmount
mount_checkpoint overlay=laid
is_other "$F" "$of_files" || fail "the overlay again, without its time"
unmount
[ "$(newest)" = "$of_files" ] || fail "the files have changed"
mount_checkpoint rw
[ "$(mtime "$F")" = "$of_files" ] || fail "without the overlay another time"
edited "$F" "$M/params/emb.weight/bf16"
edited "$F" "$F.npy"
[ "$(mtime "$F")" = "$(newest)" ] || fail "$(mtime "$F"), and the files $(newest)"
unmount
