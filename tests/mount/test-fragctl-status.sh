#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fragctl finds a running job and its mount and knows all ranks of it, asked either way.
set -eu
cd "$TMPDIR"
pids=
leave() {
	status=$?
	trap - EXIT
	if mountpoint -q m; then fusermount3 -u m || umount -l m; fi
	# shellcheck disable=SC2086
	[ -z "$pids" ] || kill $pids 2>/dev/null || true
	wait
	exit $status
}
mkdir m
trap leave EXIT

wait_for() { # wait_for COMMAND...: a minute at most
	tries=600
	until "$@"; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || { echo "never happened: $*"; cat rank*.log; exit 1; }
		sleep 0.1
	done
}
lists_a_job() {
	fragctl jobs >jobs
	[ "$(wc -l <jobs)" = 2 ]
}
trains() {
	grep -q '^step' rank0.log
}

for rank in 0 1 2; do
	RANK=$rank WORLD_SIZE=3 FRAG_JOB_ID=fragctl "$top_builddir/docs/examples/train" --stage 2 \
		--forever --every 1 --pause-ms 20 >rank$rank.log 2>&1 &
	pids="$pids $!"
done
wait_for lists_a_job
wait_for trains
address=$(awk 'NR == 2 { print $2 }' jobs)
grep -q "^fragctl  *$address  *3 " jobs

expect() { # expect FILE: all ranks are alive, in the order of their numbers, and hold something
	grep -q 'world 3 (3 alive), step [1-9]' "$1" || { cat "$1"; exit 1; }
	for rank in 0 1 2; do
		pid=$(echo "$pids" | awk -v n=$((rank + 1)) '{ print $n }')
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

dd if=/dev/fuse count=0 status=none 2>/dev/null ||
	{ echo "asked the job; /dev/fuse may not be opened, so no mount"; exit 77; }
! fragfs "$address" m -o plain 2>why
tail -n 1 why | grep -q "^fragfs: $address does not take our key" || { cat why; exit 1; }
fragfs "$address" m
# Of all mounts; those of other tests may come and go meanwhile.
fragctl status >mounted 2>/dev/null || true
grep -q "^$TMPDIR/m: $address, job fragctl\$" mounted
fragctl status m >mounted
expect mounted
fragctl status --json m >json
grep -q '"alive": 3' json
