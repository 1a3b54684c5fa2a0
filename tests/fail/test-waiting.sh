#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Who asks for names and attributes of a stopped rank, of which nothing is known yet, waits; nobody else does.
# A mount has few threads, and in each folder somebody may wait.  By message: tables in reach of memory are fetched early.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
train_job waiting-$$

mount_with() {
	kill -CONT "$rank1"
	within 60 fragfs "$address" "$M" -o "transport=zmq,$1" || fail "fragfs: $?"
	wait_until 60 grep -q ^alive "$M/ranks/1/state" || fail "rank 1: $(cat "$M/ranks/1/state")"
}

# One in each folder: the kernel asks for one name of a folder at a time.
ask() {
	mount_with "$1"
	stop_process "$rank1"
	asked='stat cat ls'
	waiting=
	n=0
	in_background stat -c %F "$M/ranks/1/params/$param"
	in_background cat "$M/ranks/1/partitions/0.0/exp_avg"
	in_background ls "$M/ranks/1/partitions/1.0"
}
in_background() {
	n=$((n + 1))
	# A background process of a script ignores SIGINT; env gives it back.
	env --default-signal=INT "$@" >out.$n 2>err.$n &
	waiting="$waiting $!"
	started $!
}
all_wait() {
	# shellcheck disable=SC2086
	[ "$(ps -o comm=,stat= -p "$(echo $waiting | tr ' ' ,)" | grep -c "^\($(echo $asked | sed 's/ /\\|/g')\) *[DS]")" = $n ]
}
others_are_served() {
	wait_until 60 all_wait || fail "nobody waits"
	for file in step "ranks/0/params/$param/fp32" "params/$param/fragments" groups/1/lr; do
		within 60 cat "$M/$file" >file || fail "$file: $?, while others wait for rank 1"
		[ -s file ] || fail "$file: empty"
	done
	within 60 ls -l "$M/params/$param" "$M/ranks/0/partitions/0.0" >file || fail "ls: $?"
	all_wait || fail "they did not wait"
}
all_end() {
	for pid in $waiting; do
		wait_until 60 is_over "$pid" || fail "one waits on"
	done
}

mount_with timeout=10
param=$(cd "$M/ranks/0/params" && ls -d */fp32 | head -n 1)
param=${param%/fp32}
size=$(stat -c %s "$M/ranks/1/partitions/0.0/exp_avg")
ls "$M/ranks/1/partitions/1.0" >names
unmount

# It goes on: they have what they asked for.
ask timeout=200
others_are_served
kill -CONT "$rank1"
all_end
[ "$(cat out.1)" = directory ] || fail "a name: $(cat out.1 err.1)"
[ "$(wc -c <out.2)" = "$size" ] || fail "a file: $(wc -c <out.2) bytes; $(cat err.2)"
cmp names out.3 || fail "a folder: $(cat out.3 err.3)"
unmount

# It does not: they are told so.
ask timeout=5
all_end
for i in 1 2 3; do
	grep -q 'timed out' err.$i || fail "of a silent rank: $(cat out.$i err.$i)"
done
kill -CONT "$rank1"
unmount

# They are interrupted, one by one.
ask timeout=200
others_are_served
for pid in $waiting; do
	kill -INT "$pid"
	wait_until 60 is_over "$pid" || fail "not interrupted"
done
within 60 cat "$M/step" >file || fail "step: $?, after an interrupt"
kill -CONT "$rank1"
unmount

# The mount ends.
ask timeout=200
wait_until 60 all_wait || fail "nobody waits"
kill -TERM $(servers)
wait_until_gone || fail "fragfs goes on while somebody waits"
all_end
drop_mount "$M"

# Hyper-parameters and the stream of events are asked of rank 0, and by messages an answer is waited for.
ask_rank0() {
	mount_with transport=zmq,"$1"
	wait_until 60 head -c 1 "$M/groups/0/lr" "$M/ranks/1/partitions/0.0/fp32" >/dev/null 2>&1 || fail "nothing to be read"
	stop_process "$rank0"
	asked='cat head'
	waiting=
	n=0
	in_background cat "$M/groups/0/lr"
	in_background cat "$M/groups/1/lr"
	in_background head -n 1 "$M/events"
}
rank1_is_served() {
	wait_until 60 all_wait || fail "nobody waits for rank 0"
	for file in step ranks/1/partitions/0.0/fp32; do
		within 60 cat "$M/$file" >file || fail "$file: $?, while others wait for rank 0"
	done
	all_wait || fail "they did not wait for rank 0"
}
ask_rank0 timeout=200
rank1_is_served
kill -CONT "$rank0"
all_end
for i in 1 2; do
	grep -qx '0\.[0-9]*' out.$i || fail "a hyper-parameter: $(cat out.$i err.$i)"
done
grep -q '^{"event":' out.3 || fail "events: $(cat out.3 err.3)"
unmount

# Rank 1 has the same, and is asked by who comes to that when rank 0 is known to be silent.
is_told() {
	grep -q 'timed out' "err.$1" || grep -qx '0\.[0-9]*' "out.$1"
}
ask_rank0 timeout=5
for i in 1 2; do
	wait_until 60 is_told $i || fail "a hyper-parameter of a silent rank: $(cat out.$i err.$i)"
done
kill -CONT "$rank0"
all_end
unmount

ask_rank0 timeout=200
rank1_is_served
kill -TERM $(servers)
wait_until_gone || fail "fragfs goes on while somebody waits for rank 0"
all_end
drop_mount "$M"
kill -CONT "$rank0"

# It dies.
ask timeout=200
others_are_served
kill -9 "$rank1"
all_end
for i in 1 2 3; do
	grep -q 'Input/output error' err.$i || fail "of a dead rank: $(cat out.$i err.$i)"
done
