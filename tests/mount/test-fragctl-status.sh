#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fragctl finds a running job and its mount, and knows all its ranks, by the mount and by the job.
. "$top_srcdir/tests/mount/lib.sh"
lists_a_job() {
	fragctl jobs >jobs
	[ "$(wc -l <jobs)" = 2 ]
}
trains() {
	grep -q '^step' rank0.log
}

ranks=
for rank in 0 1 2; do
	RANK=$rank WORLD_SIZE=3 FRAG_JOB_ID=fragctl "$top_builddir/docs/examples/train" --stage 2 \
		--forever --every 1 --pause-ms 20 >rank$rank.log 2>&1 &
	started $!
	ranks="$ranks $!"
done
wait_until 60 lists_a_job || fail "no job"
wait_until 60 trains || fail "it does not train"
address=$(awk 'NR == 2 { print $2 }' jobs)
grep -q "^fragctl  *$address  *3 " jobs

expect() { # expect FILE: all ranks are alive, in the order of their numbers, and hold something
	grep -q 'world 3 (3 alive), step [1-9]' "$1" || { cat "$1"; exit 1; }
	for rank in 0 1 2; do
		pid=$(echo "$ranks" | awk -v n=$((rank + 1)) '{ print $n }')
		grep -q "^ *$rank  .* $pid  alive  *[a-z]*  .*[1-9][0-9.]*[KM]\$" "$1" ||
			{ echo "rank $rank, pid $pid:"; cat "$1"; exit 1; }
	done
}
fragctl status "$address" >asked
expect asked
grep -q "^$address, job fragctl\$" asked
# One of several addresses is enough.
fragctl status "127.0.0.1:1,$address" >asked
expect asked

need_dev_fuse
shut_out() { # shut_out OPTION: long before the timeout, in one line
	! timeout 60 fragfs "$address" "$M" -o "$1,timeout=600" 2>why || fail "$1: taken"
	[ "$(wc -l <why)" = 1 ] && grep -q "^fragfs: $address does not accept" why ||
		fail "$1: $(cat why)"
}
asked_otherwise() { # asked_otherwise VARIABLE VALUE WHAT: what fragctl goes by is said
	! (export "$1=$2" && timeout 60 fragctl status "$address") >/dev/null 2>why || fail "$1: taken"
	grep -q "$address does not accept .* fragctl: $3)" why || fail "$1: $(cat why)"
}
shut_out plain
asked_otherwise FRAG_PLAIN 1 FRAG_KEY_FILE
(umask 077 && printf %064d 0 >other.key)
shut_out key=other.key
asked_otherwise FRAG_KEY_FILE "$T/other.key" FRAG_PLAIN=1
within 60 fragfs fragctl mnt || fail "fragfs, of a job by its name: $?"
[ "$(cat mnt/step)" -gt 0 ] || fail "no job is mounted"
fusermount3 -u mnt
mkdir fragctl # a folder that is here is a checkpoint first
! timeout 60 fragfs fragctl mnt 2>why || fail "a folder is taken for a job"
grep -q fragctl why || fail "$(cat why)"
rmdir fragctl
within 60 fragfs "$address" mnt || fail "fragfs: $?"
# status of all mounts; those of other tests may come and go meanwhile.
fragctl status >mounted 2>/dev/null || true
grep -q "^$M: $address, job fragctl\$" mounted
fragctl status mnt >mounted
expect mounted
fragctl status --json mnt >json
grep -q '"alive": 3' json
top_counts_steps() { # in the second for which it looks
	within 60 fragctl top --once -j "$M" >top && grep -q '^job fragctl  .*  [1-9][0-9.]* steps/s ' top
}
wait_until 60 top_counts_steps || fail "top: $(cat top)"
unmount

# A job that is not mounted, by its name.
export FRAGFS="$top_builddir/fragfs"
fragctl status -j fragctl >asked
expect asked
within 60 fragctl freeze -j fragctl -- sh -c 'cat "$FRAG_MOUNT/phase"' >phase || fail "freeze -j: $?"
[ "$(cat phase)" = frozen ] || fail "freeze -j: $(cat phase)"
# freeze and `break off` need a mount that lives on when fragctl ends.
for words in freeze 'break off'; do
	got=0
	# shellcheck disable=SC2086 # words
	within 60 fragctl $words -j fragctl 2>usage || got=$?
	[ $got = 2 ] || fail "$words without a mount: $got: $(cat usage)"
	grep -q 'is not mounted: name a command\|only the mount that watches' usage || fail "$words: $(cat usage)"
done
refused 'no rank of the job has an arena' fragctl arena -j fragctl
within 60 fragfs "$address" mnt -o rw || fail "fragfs: $?"
within 60 fragctl freeze "$M" || fail "freeze: $?"
within 60 fragctl thaw -j fragctl || fail "thaw -j: $?"
thawed() {
	grep -q '^thawed$' "$M/.frag/freeze"
}
wait_until 60 thawed || fail "thaw -j"
# An edit of gradients, for which mostly no window with a boundary is open.
for _ in 1 2 3; do
	within 60 fragctl set -j "$M" "$(ls "$M/params" | head -n 1)/grad" 0 || fail "set of gradients: $?"
done

# When all ranks are gone, none can agree on a boundary.
kill_at_once $ranks
wait $ranks 2>/dev/null || :
refused 'the job, or the rank that would have to agree, is lost' fragctl break -j "$M" 'nan(fp32) > 0'
refused 'the job, or the rank that would have to agree, is lost' fragctl freeze "$M"
