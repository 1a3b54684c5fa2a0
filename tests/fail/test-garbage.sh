#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What strangers throw at every open port of a job that trains, with a key and without one, changes nothing:
# its readers see whole generations, no rank dies or runs out of descriptors, its log stays short, and who
# comes with the key gets in when they have gone.  A mount listens nowhere.  TEST_SECONDS (2).
set -eu
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
seconds=${TEST_SECONDS:-2}
tools=$top_builddir/tests/fail
seed=${TEST_SEED:-$$}
echo "TEST_SEED=$seed"
cd "$T"
ulimit -S -n 1024 # of the ranks; a quarter is for strangers

start_job() { # start_job KIND PLAIN
	FRAG_JOB_ID=garbage-$$-$1 WORLD_SIZE=2 FRAG_PLAIN=$2
	export FRAG_JOB_ID WORLD_SIZE FRAG_PLAIN
	: >job.log
	ranks=
	for r in 0 1; do
		RANK=$r "$tools/tear-job" 3 6000 >>job.log 2>&1 &
		ranks="$ranks $!"
		started $!
	done
	wait_until 60 grep -q '^127' job.log || { cat job.log; fail "no job"; }
	address=$(grep -m 1 '^127' job.log)
}

mount_job() {
	within 60 "$top_builddir/fragfs" "$address" "$M" ${1:+-o "$1"} ||
		{ cat job.log; fail "$kind: fragfs: $?"; }
}

# The process that serves $M: its command line has its path.
server_of() {
	for p in /proc/[0-9]*; do
		case $({ tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null) in
		*/fragfs\ *"$M"*) echo "${p#/proc/}" ;;
		esac
	done
}

few_descriptors() {
	for pid in $ranks; do
		[ "$(ls "/proc/$pid/fd" | wc -l)" -lt "$1" ] || return 1
	done
}

try() { # try KIND PLAIN OPTIONS
	kind=$1
	start_job "$1" "$2"
	mount_job "$3"
	server=$(server_of)
	[ -n "$server" ] || fail "$kind: no server of $M"
	within 60 "$tools/throw-garbage" 0 1 $server >ports
	grep -qx 'ports 0' ports || fail "$kind: a mount listens: $(cat ports)"
	before=$(cat "$M/step")

	"$tools/tear-read" "$M" "$seconds" 1 "$seed" >read.log &
	reader=$!
	started $reader
	# shellcheck disable=SC2086 # a list
	within $((seconds + 30)) "$tools/throw-garbage" "$seconds" "$seed" $ranks >ports ||
		{ cat job.log; fail "$kind: a port is gone: $?"; }
	few_descriptors 700 || fail "$kind: strangers have nearly all descriptors"
	grep -qx 'ports 4' ports || fail "$kind: not two ports each: $(cat ports)"
	wait $reader || { cat read.log job.log; fail "$kind: the reader"; }
	cat ports read.log
	for pid in $ranks; do
		kill -0 "$pid" || { cat job.log; fail "$kind: rank $pid is dead"; }
	done
	[ "$(cat "$M/step")" -gt "$before" ] || fail "$kind: it does not train"
	wait_until 60 few_descriptors 64 || fail "$kind: descriptors are still taken"
	[ "$(wc -l <job.log)" -lt 40 ] || { cat job.log; fail "$kind: a long log"; }
	fusermount3 -u "$M" 2>/dev/null || umount "$M"
	mount_job "$3"
	within 60 cat "$M/params/p0/fp32" >/dev/null || fail "$kind: a new mount"
	fusermount3 -u "$M" 2>/dev/null || umount "$M"
	# shellcheck disable=SC2086
	kill $ranks
	# shellcheck disable=SC2086
	wait $ranks || { cat job.log; fail "$kind: the ranks ended with $?"; }
}

try key 0 ""
try plain 1 plain
