#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A whole job is killed and started again: a mount that there was shows the new one as soon as all its ranks have come, and
# takes edits; a file that was being read is none of that one.  If its parameters are others, or its key, it says so.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
# Of those that nobody takes who was not told: another job would have it in between.
export FRAG_PORT=$((22000 + $$ % 8000)) FRAG_JOB_ID=again-$$

# start STAGE: of two ranks.
start() {
	for rank in 0 1; do
		RANK=$rank WORLD_SIZE=2 "$top_builddir/docs/examples/train" \
			--stage "$1" --hidden 300 --forever --every 1 --pause-ms 20 >rank$rank.log 2>&1 &
		started $!
		eval "rank$rank=$!"
	done
}
trains() {
	fragctl jobs >jobs && [ "$(wc -l <jobs)" = 2 ] && grep -q '^step' rank0.log
}
end_all() {
	kill -9 $rank0 $rank1
	for pid in $rank0 $rank1; do
		wait $pid || :
	done
}
kill_all() {
	end_all
	for rank in 0 1; do
		wait_until 60 is_in_state $rank lost || fail "$way: rank $rank: $(state $rank)"
	done
}
state() {
	cat "$M/ranks/$1/state"
}
is_in_state() {
	state "$1" | grep -q "^$2"
}

is_said() {
	for rank in 0 1; do
		wait_until 60 is_in_state $rank "lost .*$1" || fail "$way, not '$1': $(state $rank)"
	done
	within 60 cat "$file" >/dev/null 2>why && fail "$way: read of a job of which it was said that $1"
	:
}

# The step of a new job is less than that of the old one, or was, and goes on.
goes_on() {
	[ "$(cat "$M/step")" != "$step" ]
}

for way in transport=auto transport=zmq; do
	start 1
	wait_until 60 trains || fail "no job"
	within 60 fragfs "$(awk 'NR == 2 { print $2 }' jobs)" "$M" -o "rw,$way" || fail "$way: fragfs: $?"
	file=$(ls -S "$M"/params/*/fp32 | head -n 1)
	size=$(stat -c %s "$file")
	exec 5<"$file"
	dd bs=4096 count=1 <&5 >/dev/null 2>&1 || fail "$way: nothing to be read"

	kill_all
	start 1
	for rank in 0 1; do
		wait_until 60 is_in_state $rank alive || fail "$way: started again, rank $rank: $(state $rank)"
	done
	step=$(cat "$M/step")
	wait_until 60 goes_on || fail "$way: step $step, and no other"
	if within 60 cat <&5 >/dev/null 2>why; then
		fail "$way: a file of the old job is read to its end"
	fi
	exec 5<&-
	within 60 cat "$file" >got || fail "$way: not read of the new one"
	[ "$(wc -c <got)" = "$size" ] || fail "$way: $(wc -c <got) bytes"
	within 60 ls -l "$M"/params/* "$M"/ranks/1/partitions/* >/dev/null || fail "$way: not listed"
	within 60 cp got "$file" || fail "$way: not written to"

	kill_all
	start 2
	is_said 'the job was started again, with other ranks or parameters'
	end_all
	start 1
	for rank in 0 1; do
		wait_until 60 is_in_state $rank alive || fail "$way: as at first, rank $rank: $(state $rank)"
	done
	within 60 cat "$file" >got || fail "$way: not read of that one"

	kill_all
	rm "$(awk 'NR == 2 { print $5 }' jobs)"
	start 1
	is_said 'does not take our key'
	unmount
	end_all
done
