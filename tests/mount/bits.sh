# SPDX-License-Identifier: Apache-2.0
# A job whose memory is known to the last bit (tests/mount/bits-job.c), after lib.sh.

seed=${TEST_SEED:-$$}
echo "TEST_SEED=$seed"

# start_job LAYOUT WORLD SET: starts it by the command $as, if there is one.
start_job() {
	what="layout $1, $2 ranks, $3"
	rm -f orders answers
	mkfifo orders answers
	${as:-} "$top_builddir/tests/mount/bits-job" "$@" <orders >answers 2>job.log &
	job=$!
	started $job
	exec 3>orders 4<answers
	read -r address <&4 || fail "$what: no job"
}

# on_nvme COMMAND...: jobs that COMMAND starts have their partitions on NVMe, in many slices each.
on_nvme() {
	mkdir -p "$T/swap"
	export FRAG_SWAP_DIR="$T/swap" FRAG_PINNED_MEM=64K
	"$@"
	unset FRAG_SWAP_DIR FRAG_PINNED_MEM
}

# ask WORDS...: sends the job a line, whose answer must be "ok".
ask() {
	echo "$*" >&3
	read -r answer <&4 || answer='no answer'
	[ "$answer" = ok ] || fail "$what: $*: $answer"
}

end_job() {
	exec 3>&- 4<&-
	wait $job || fail "$what: the job ended with $?"
}

# mount_job [OPTIONS]
mount_job() {
	within 60 "$top_builddir/fragfs" "$address" "$M" ${1:+-o "$1"} || fail "$what: fragfs: $?"
}

# chance N: prints a number below N, drawn from the seed; another one each time, in $(chance N) too.
echo "$seed" >"$T/chance"
chance() {
	next=$((($(cat "$T/chance") * 1103515245 + 12345) % 2147483648))
	echo $next >"$T/chance"
	echo $((next / 65536 % $1))
}

# range FILE EXPECTED SIZE OFFSET: ranges of odd sizes at odd places.
range() {
	dd if="$1" iflag=skip_bytes,count_bytes bs=997 skip="$4" count="$3" status=none >got.range ||
		fail "$what: dd of $1"
	dd if="$2" iflag=skip_bytes,count_bytes bs=4096 skip="$4" count="$3" status=none >want.range
	cmp got.range want.range || fail "$what: $1: $3 bytes at $4"
}

# read_state PARAM NAME KEY: reads a state as a whole, in ranges, and as .npy.
read_state() {
	file=$M/params/$2/$3
	ask expect "$1" "$3" "$T/want"
	bytes=$(stat -c %s want)
	[ "$(stat -c %s "$file")" = "$bytes" ] || fail "$what: $file has $(stat -c %s "$file") bytes, not $bytes"
	cat "$file" >got || fail "$what: cat $file"
	cmp got want || fail "$what: $file"
	range "$file" want $((bytes / 3 + 1)) $((bytes / 2))
	[ "$bytes" -lt 9 ] || range "$file" want 5 $((bytes - 7))
	ask ranges "$file" "$1" "$3" 20 "$(chance 1000000)"
	tail -c "$bytes" "$file.npy" | cmp - want || fail "$what: $file.npy"
	[ "$(head -c 6 "$file.npy" | tail -c 5)" = NUMPY ] || fail "$what: $file.npy has no header"
}

# read_all "PARAM=NAME..." KEY...: reads these states, and what every rank's own view shows.
read_all() {
	names=$1
	shift
	for pair in $names; do
		for key in "$@"; do
			read_state "${pair%%=*}" "${pair#*=}" "$key"
		done
	done
	ask views "$M"
}

SMALL='one=one odd.w=odd.w scalar=scalar up.bias=up.bias cube=cube a/b=a%2Fb two=two embed.weight=embed.weight'
