#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two writers on two mounts set whole parameters while four ranks train (each step adds 1 to everything):
# no parameter is ever half of one value, fp32 and its low-precision copy agree, and so do all ranks.  In
# most rounds a rank is killed at a moment by chance, rank 0, which coordinates, in every second: those
# that live agree all the same, whole old or whole new, and none waits for ever.  TEST_ROUNDS (5).
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"
rounds=${TEST_ROUNDS:-5}
STEPS=400
[ "${sanitizer:-no}" = no ] || STEPS=150
mkdir "$T/mnt2"
W_BYTES=$((300 * 1001 * 4)) V_BYTES=$((701 * 4))

drop_mounts() {
	drop_mount "$T/mnt2"
	drop_mount "$M"
}

at_end() {
	drop_mounts || :
}

# value N BYTES: so many bytes of the float32 2^N.
value() {
	# shellcheck disable=SC2059 # the format is the value
	printf "\\000\\000\\$(printf %03o $((($1 + 127) % 2 * 128)))\\$(printf %03o $((($1 + 127) / 2)))" >block
	while [ "$(stat -c %s block)" -lt "$2" ]; do
		cat block block >twice
		mv twice block
	done
	head -c "$2" block
}

for n in 3 5 7 9; do
	value $n $W_BYTES >w.$n
	value $n $V_BYTES >v.$n
done

# write_on MOUNT NAME: until it is told to end; how often it went well.
write_on() {
	done=0
	while [ ! -e enough ]; do
		for n in 3 5 7 9; do
			for p in v w v v; do
				if within 30 cp "$p.$n" "$1/params/$p/fp32" 2>>"$2.errors"; then
					done=$((done + 1))
				elif [ ! -e killed ]; then
					echo "$p.$n: not written" >>"$2.failed"
				fi
				[ ! -e enough ] || break 2
			done
		done
	done
	echo $done >"$2.count"
}

# A rank is killed: rank 0 in every second round, when the training is somewhere in its middle.
kill_one() {
	victim=0
	[ $((round % 2)) = 0 ] || victim=$((1 + $(chance 3)))
	sleep "0.$((20 + $(chance 70)))"
	: >killed
	ask kill $victim
	echo "round $round: rank $victim killed"
}

round=0
while [ $round -lt "$rounds" ]; do
	rm -f enough killed ./*.errors ./*.failed ./*.count
	start_job 0 4 even
	mount_job rw,timeout=3
	within 20 "$top_builddir/fragfs" "$address" "$T/mnt2" -o rw,timeout=3 || fail "second mount: $?"
	ask train $STEPS
	write_on "$M" first &
	first=$!
	write_on "$T/mnt2" second &
	second=$!
	started $first
	started $second
	[ $round = 0 ] || kill_one
	ask agree
	: >enough
	wait $first && wait $second || fail "a writer ended with $?"
	[ ! -e first.failed ] && [ ! -e second.failed ] || fail "writes failed though no rank had: $(cat ./*.errors)"
	drop_mounts
	exec 3>&- 4<&-
	wait $job || fail "$what: the job ended with $?"
	echo "round $round: $(cat first.count) and $(cat second.count) parameters written"
	[ $round != 0 ] || [ "$(cat first.count)" -gt 2 ] || fail "too few to say anything"
	round=$((round + 1))
done
