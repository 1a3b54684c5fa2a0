#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Four writers on two mounts set whole parameters while four ranks train (each step adds 1 to everything), two
# readers look on, and in all rounds but the first a writer, a mount or a rank is killed at a moment by chance,
# rank 0, which coordinates, as often as the others together, a child of it living on in every second.  Every
# parameter always has one value on all ranks, hp and lp; the ranks that live end with the same; and there is
# an order of all that was done that explains all that was seen (history.h).  In every third round states are on NVMe.
# TEST_ROUNDS (9; 4 with sanitizers), and on until so many edits that were under way at a kill have been committed, and
# aborted: TEST_COMMITS and TEST_ABORTS (2; 0).  TEST_SKEW (0): boundaries that ranks pass between two steps, each for
# itself, see edit-job.c.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"
rounds=9 commits=2 aborts=2
[ "${sanitizer:-no}" = no ] || rounds=4 commits=0 aborts=0
rounds=${TEST_ROUNDS:-$rounds} commits=${TEST_COMMITS:-$commits} aborts=${TEST_ABORTS:-$aborts}
tools=$top_builddir/tests/fail
mkdir "$T/mnt2" "$T/swap"
W=4

# All that was said goes with it.
give_up() {
	for file in job.err check.out; do
		[ ! -s $file ] || cp $file ${file%.*}.log
	done
	fail "$what: $*"
}

begin_job() {
	stage=$1
	what="round $round, stage $stage, $victim"
	rm -f orders answers rank.* kill.* client.* job.err check.out ./*.log
	mkfifo orders answers
	pause=$((1000 + $(chance 5000)))
	# in every third round what is edited is on NVMe, with room for all steps that clients may have open: else ESTALE
	[ $((round % 3)) != 1 ] || export FRAG_SWAP_DIR="$T/swap" FRAG_PINNED_MEM=256K FRAG_SWAP_MAX=64M
	"$tools/edit-job" "$stage" $W $pause "${TEST_SKEW:-0}" <orders >answers 2>job.err &
	job=$!
	unset FRAG_SWAP_DIR FRAG_PINNED_MEM FRAG_SWAP_MAX
	started $job
	exec 3>orders 4<answers
	read -r address <&4 || give_up "no job"
}

order() {
	echo "$*" >&3
	read -r answer <&4 || answer='no answer'
	case $answer in ok*) ;; *) give_up "$*: $answer" ;; esac
}

# mount_at FOLDER: its server is $server.
mount_at() {
	"$top_builddir/fragfs" "$address" "$1" -f -o rw,timeout=20 2>>"$1.log" 3>&- 4<&- &
	server=$!
	started $server
	wait_until 60 mounted "$1" || give_up "no mount at $1"
}

# client HOW MOUNT ID: its pid is added to $clients.  It closes the job's orders, as the mounts do: a child that
# outlives it would else keep the job.
client() {
	luck=$(chance 1000000)
	"$tools/edit-client" "$1" "$2" "$3" "$luck" "client.$3" 3>&- 4<&- &
	started $!
	clients="$clients $!"
}

begin_clients() {
	clients='' writes=write
	[ "$victim" != 'writer with a child' ] || writes=fork
	client $writes "$M" 0
	client write "$M" 1
	client write "$T/mnt2" 2
	client write "$T/mnt2" 3
	client read "$M" 4
	client read "$T/mnt2" 5
}

choose_victim() {
	victim=nobody
	[ "$round" != 0 ] || return 0
	case $(chance 6) in
	0) victim='mount' ;;
	1) victim='writer' ;;
	2) victim="rank $((1 + $(chance 3)))" ;;
	*) victim='rank 0' ;;
	esac
	[ "$victim" = mount ] || [ $((round % 2)) = 0 ] || victim="$victim with a child"
}

kill_victim() {
	case $victim in
	'rank '*child) order fork "$(echo "$victim" | cut -c6)" ;;
	esac
	sleep "0.$((20 + $(chance 60)))"
	case $victim in
	mount) "$tools/edit-client" kill $second mount kill.mount ;;
	writer*) "$tools/edit-client" kill "$(echo "$clients" | cut -d' ' -f2)" writer kill.writer ;;
	rank*) order kill "$(echo "$victim" | cut -c6)" ;;
	esac
	[ "$victim" = nobody ] || sleep "0.$((10 + $(chance 30)))"
}

all_gone() {
	for pid in "$@"; do
		! grep -q '^State:[^Z]*$' "/proc/$pid/status" 2>/dev/null || return 1
	done
}

# Each ends its last edit or read first.
end_clients() {
	# shellcheck disable=SC2086 # a list
	{
		kill -TERM $clients 2>/dev/null || :
		wait_until 60 all_gone $clients || give_up "somebody waits for ever: $(cat "$M/.frag/inflight")"
		wait $clients 2>/dev/null || :
	}
}

lives() {
	case $victim in "rank $1"*) return 1 ;; esac
}

# What each rank that lives holds at the end.
compare_ranks() {
	compared=0
	for p in p0 p1 p2 p3; do
		for key in fp32 lp bf16; do
			files='' size=4
			[ $key != bf16 ] || size=2
			for r in 0 1 2 3; do
				! lives $r || files="$files $M/ranks/$r/params/$p/$key"
			done
			# shellcheck disable=SC2086 # a list
			"$tools/edit-client" agree $size $files >check.out || give_up "the ranks do not agree"
			compared=$((compared + $(cat check.out)))
		done
	done
	[ $compared -ge $W ] || give_up "only $compared files of ranks"
}

# What became of the edits of a writer that was killed .frag/log says, in which each edit that was committed has a
# line: as many as close(2) returned 0, and one for each that the ranks have.  An edit that another one, by either
# mount, replaced at the same boundary has not been seen, and may have been committed.
log_says_which() {
	grep "\"pid\":$first,.*\"outcome\":\"committed\"" "$M/.frag/log" |
		sed 's|.*"param":"p\([0-9]\)".*|L \1|' >logged || :
	{
		grep -h '^S' rank.*
		echo "S 0 0 ${answer#ok }" # at the end: behind the last step edits are applied, too
	} | cat - logged | awk '
	$1 == "S" { for (p = 0; p < 4; p++) seen[p, int($(p + 4) / 4096)] = 1 }
	$1 == "W" && ours { begun[$3] = $2; time[$3] = $4 }
	$1 == "D" && ours { if (!$5) sure[$2]++; delete begun[$3] }
	$1 == "D" && !$5 { returned[$2] = $4 > returned[$2] ? $4 : returned[$2] }
	$1 == "L" { logged[$2]++ }
	END {
		for (n in begun) {
			p = begun[n]
			if (seen[p, n])
				sure[p]++
			else if (returned[p] > time[n])
				maybe[p]++
		}
		for (p = 0; p < 4; p++)
			if (logged[p] + 0 < sure[p] + 0 || logged[p] + 0 > sure[p] + maybe[p]) {
				printf "p%d: %d edits in the log, not %d\n", p, logged[p], sure[p]
				bad = 1
			}
		exit bad
	}' - ours=1 client.0 client.1 ours=0 client.2 client.3 >log.out
}

end_round() {
	order end
	compare_ranks
	wait_until 60 log_says_which || give_up ".frag/log: $(cat log.out)"
	drop_mounts
	exec 3>&- 4<&-
	wait $job || give_up "the job ended with $?"
	"$tools/check-history" "$stage" rank.* client.* $(ls kill.* 2>/dev/null) >check.out || give_up "its history"
	[ ! -s job.err ] || ! grep -q 'edit-job:' job.err || give_up "a rank died"
	echo "$what: $(tail -n 1 check.out)"
	tail -n 1 check.out >>counts
}

# How many there were of NAME.
sum() {
	awk -v name="$1" '{ gsub("[;,]", ""); for (i = 1; i < NF; i++) if ($i == name) n += $(i + 1) } END { print n + 0 }' counts
}

# By chance: so there is no bound but the time that the whole test has.
enough() {
	[ $round -ge "$rounds" ] && [ "$(sum committed)" -ge "$commits" ] && [ "$(sum aborted)" -ge "$aborts" ]
}

round=0
: >counts
until enough; do
	choose_victim
	case $(chance 3) in 0) begin_job 0 ;; 1) begin_job 1 ;; *) begin_job 3 ;; esac
	mount_at "$M"
	first=$server
	mount_at "$T/mnt2"
	second=$server
	begin_clients
	kill_victim
	end_clients
	end_round
	round=$((round + 1))
done
echo "$(sum edits) edits, $(sum reads) reads; under way at a kill: $(sum committed) committed, $(sum aborted) aborted"
