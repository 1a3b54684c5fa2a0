#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A whole job is killed and started again: a mount that there was shows the new one as soon as all its ranks have come, and
# takes edits; a file that was being read is none of that one.  If its parameters are others, or its key, it says so.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
export FRAG_JOB_ID=again-$$
take_port

# start STAGE: of two ranks.
start() {
	for rank in 0 1; do
		RANK=$rank WORLD_SIZE=2 "$top_builddir/docs/examples/train" \
			--stage "$1" --hidden 300 --forever --every 1 --pause-ms 20 >rank$rank.log 2>&1 5<&- 6>&- 7>&- 8<&- &
		started $!
		eval "rank$rank=$!"
	done
}
trains() {
	fragctl jobs >jobs && [ "$(wc -l <jobs)" = 2 ] && grep -q '^step' rank0.log
}
end_all() {
	kill_at_once $rank0 $rank1
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

# is_said TEXT: of each rank, behind why it was lost at first.
is_said() {
	for rank in 0 1; do
		wait_until 60 is_in_state $rank "l[oe][sf]t since .* UTC: [a-z][^;]*; .*$1" || fail "$way, not '$1': $(state $rank)"
	done
	within 60 cat "$file" >/dev/null 2>why && fail "$way: read of a job of which it was said that $1"
	:
}

# The step of a new job is less than that of the old one, or was, and goes on.
goes_on() {
	[ "$(cat "$M/step")" != "$step" ]
}

until_alive() {
	for rank in 0 1; do
		wait_until 60 is_in_state $rank alive || fail "$way, $1, rank $rank: $(state $rank)"
	done
}
# begin_edit FILE NAME [OPTION]: by a process of its own, which has written what came, and closes when NAME ends.
begin_edit() {
	mkfifo "$2"
	dd of="$1" bs=400000 conv=fsync "${3-status=none}" <"$2" 2>"why.$2" &
	eval "writer_$2=$!"
	started $!
}
has_open() {
	[ -n "$(find "/proc/$1/fd" -lname "$2")" ]
}
ends_stale() {
	eval "writer=\$writer_$1"
	wait_until 60 is_over "$writer" || fail "$way: the edit of $1 does not end"
	wait "$writer" && fail "$way: the edit of $1 of the old job is made in the new one"
	grep -q 'Stale file handle' "why.$1" || fail "$way: $1: $(cat "why.$1")"
	rm "$1"
}

for way in transport=auto transport=zmq,key=$T/kept; do
	start 1
	wait_until 60 trains || fail "no job"
	cp "$(awk 'NR == 2 { print $5 }' jobs)" kept
	within 60 fragfs "$(awk 'NR == 2 { print $2 }' jobs)" "$M" -o "rw,$way" || fail "$way: fragfs: $?"
	file=$(ls -S "$M"/params/*/fp32 | head -n 1)
	size=$(stat -c %s "$file")
	exec 5<"$file" 8<"$file"
	dd bs=4096 count=1 <&5 >/dev/null 2>&1 || fail "$way: nothing to be read"
	begin_edit "$file" fp32 conv=notrunc,fsync
	begin_edit "$M/groups/0/lr" lr
	exec 6>fp32 7>lr
	head -c "$size" /dev/zero >&6
	printf 0.5 >&7 # without a newline, so that fsync(2) commits it
	# shellcheck disable=SC2154
	wait_until 60 has_open "$writer_lr" "$M/groups/0/lr" || fail "$way: lr is not opened"
	within 60 fragctl freeze -t 120 "$M" >/dev/null || fail "$way: fragctl freeze: $?"

	kill_all
	name=${file%/*}
	for command in "set ${name##*/}/fp32 zero" "get ${name##*/}/fp32[0]"; do
		# shellcheck disable=SC2086 # words
		refused 'Input/output error: rank 0 is lost: ' fragctl ${command%% *} -j "$M" ${command#* }
	done
	start 1
	until_alive 'started again'
	wait_until 60 grep -qx thawed "$M/.frag/freeze" || fail "$way: started again, and $(cat "$M/.frag/freeze")"
	step=$(cat "$M/step")
	wait_until 60 goes_on || fail "$way: step $step, and no other"
	for fd in 5 8; do
		within 60 cat <&$fd >/dev/null 2>why && fail "$way: a file of the old job is read"
		grep -q 'Stale file handle' why || fail "$way: $(cat why)"
	done
	exec 5<&- 6>&- 7>&- 8<&-
	ends_stale fp32
	ends_stale lr
	within 60 cat "$file" >got || fail "$way: not read of the new one"
	[ "$(wc -c <got)" = "$size" ] || fail "$way: $(wc -c <got) bytes"
	tr -d '\0' <got | grep -q . || fail "$way: an edit of the old job is in the new one"
	grep -qx 0.5 "$M/groups/0/lr" && fail "$way: an lr of the old job is in the new one"
	within 60 ls -l "$M"/params/* "$M"/ranks/1/partitions/* >/dev/null || fail "$way: not listed"
	within 60 cp got "$file" || fail "$way: not written to"

	kill_all
	start 2
	is_said 'the job was started again, with other parameters or groups'
	end_all
	start 1
	until_alive 'as at first'
	within 60 cat "$file" >got || fail "$way: not read of that one"

	# It takes its key with it.
	kill -TERM $rank0 $rank1
	for rank in 0 1; do
		wait_until 60 is_in_state $rank left || fail "$way: ended, rank $rank: $(state $rank)"
	done
	wait $rank0 $rank1 || :
	start 1
	case $way in
	*key*) is_said 'does not accept our key' ;;
	*) until_alive 'ended, and started again' && within 60 cat "$file" >/dev/null || fail "$way: not read with another key" ;;
	esac
	unmount
	end_all
done

# A mount by the job's name finds the one that is started again at another address, with another key.
way=name
start 1
wait_until 60 trains || fail "no job"
mkdir "$FRAG_JOB_ID"
cd "$T"
within 60 fragfs "$FRAG_JOB_ID" "$M" 2>why && fail "a folder of the job's name is mounted"
grep -q "a job of that name runs, at 127.0.0.1:$FRAG_PORT, and what is here hides it$" why || fail "hidden: $(cat why)"
rmdir "$FRAG_JOB_ID"
within 60 fragfs "$FRAG_JOB_ID" "$M" -o rw || fail "fragfs $FRAG_JOB_ID: $?"
kill -TERM $rank0 $rank1
for rank in 0 1; do
	wait_until 60 is_in_state $rank left || fail "ended, rank $rank: $(state $rank)"
done
wait $rank0 $rank1 || :
take_port $((FRAG_PORT + 1))
start 1
until_alive 'started again at another address'
within 60 cat "$file" >/dev/null || fail "not read at another address"
within 60 fragctl freeze "$M" >/dev/null && fragctl thaw "$M" || fail "the mount does not write any more"
unmount
end_all
