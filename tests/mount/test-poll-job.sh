#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# step, phase and generation of a job that trains wake programs that poll them, by memory and by messages; and when the
# job ends, they wake programs that wait.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"
poll_file=$top_builddir/tests/mount/poll-file

has() {
	[ -e "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]
}

ends_with() {
	[ "$(tail -n 1 "$1")" = "$2" ]
}

rising() {
	sort -n -c "$1" && [ "$(sort -u "$1" | wc -l)" = "$(wc -l <"$1")" ]
}

for transport in auto zmq; do
	start_job 2 3 even
	rm -f ./*.seen
	mount_job rw,timeout=60,transport=$transport
	for file in step phase generation; do
		how=poll
		[ $file != phase ] || how=flips
		within 60 "$poll_file" $how "$M/$file" 30000 4 >$file.seen &
		eval "$file=$!"
	done
	for file in step phase generation; do
		wait_until 60 has $file.seen 1 || fail "$transport: $file is not ready at once"
	done
	ask train 1000000 # on until the ranks are killed: a poller may see few of the flips
	for file in step phase generation; do
		eval "wait \$$file" || fail "$transport: $file: $?: $(cat $file.seen)"
	done
	rising step.seen && rising generation.seen || fail "$transport: back: $(cat step.seen generation.seen)"
	"$poll_file" flips "$M/phase" 30000 100000 >phase.seen &
	poller=$!
	started $poller
	wait_until 60 has phase.seen 1 || fail "$transport: phase is not ready at once"
	for rank in 0 1 2; do
		ask kill $rank
	done
	wait_until 60 ends_with phase.seen lost || fail "$transport: the job's end: $(tail -n 1 phase.seen)"
	kill $poller
	wait $poller || :
	unmount
	exec 3>&- 4<&-
	wait $job || :
done
