#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo.sh [BUILD_DIR]: four ranks train a small language model, fragfs mounts their state, a tour of it.
# On a terminal it waits for Enter between the steps.  However it ends, by Ctrl-C too, no process and
# no mount is left behind.
# shellcheck disable=SC2016,SC2046,SC2086 # process ids are split where used; commands are shown
set -u

fail() {
	echo "demo: $*" >&2
	exit 1
}

build=$(cd "${1:-build}" 2>/dev/null && pwd) || fail "${1:-build}: no such folder"
for program in docs/examples/train fragfs fragctl; do
	[ -x "$build/$program" ] || fail "$build/$program is not built"
done
PATH=$build:$build/docs/examples:$PATH
stage=2
world=4
ranks=
child=
tmp=
terminal=false bold='' green='' plain=''
if [ -t 0 ] && [ -t 1 ]; then
	terminal=true
	bold=$(printf '\033[1m') green=$(printf '\033[32m') plain=$(printf '\033[0m')
fi

# ---- leaving ----

mounted() {
	grep -q " $tmp/frag " /proc/self/mountinfo
}

# Processes with the mountpoint as an argument: fragfs, also while it is only about to mount.
servers() {
	grep -lzx "$tmp/fra[g]" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3
}

unmount() {
	for try in 1 2 3 4 5 6 7 8 9 10; do
		! mounted && [ -z "$(servers)" ] && return
		fusermount3 -u "$tmp/frag" 2>/dev/null || [ "$try" -lt 5 ] ||
			fusermount3 -u -z "$tmp/frag" 2>/dev/null
		[ "$try" -lt 3 ] || kill $(servers) 2>/dev/null
		[ "$try" -lt 8 ] || kill -KILL $(servers) 2>/dev/null
		sleep 0.2
	done
}

any_alive() {
	for pid in "$@"; do
		kill -0 "$pid" 2>/dev/null && return
	done
	return 1
}

# A process that is just being forked loses a signal: so they are told again.
stop() {
	[ $# -gt 0 ] || return 0
	tenths=0
	while [ $tenths -lt 50 ] && any_alive "$@"; do
		kill "$@" 2>/dev/null
		sleep 0.1
		tenths=$((tenths + 1))
	done
	kill -KILL "$@" 2>/dev/null
}

leave() {
	status=$?
	trap '' INT TERM HUP PIPE
	trap - EXIT
	stop $child
	if [ -n "$tmp" ]; then
		unmount
		stop $ranks ${!-}
		wait
		mounted || rm -rf --one-file-system "$tmp"
	fi
	exit $status
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
trap 'exit 141' PIPE

# ---- showing ----

# In the background and waited for: a signal is answered at once, and nothing takes for ever.
bounded() {
	timeout -k 2 "$@" &
	child=$!
	wait "$child"
	set -- $?
	child=
	return "$1"
}

say() {
	printf '%s\n' "$*"
}

title() {
	if $terminal; then
		printf '\n%s' "${green}Enter goes on, Ctrl-C ends.$plain "
		read -r _ || :
	fi
	printf '\n%s\n' "$green== $*$plain"
}

show() {
	printf '%s\n' "$bold\$ $1$plain"
	bounded 30 sh -c "$1" || fail "this command failed: $1"
}

# ---- the job ----

check_ranks() {
	rank=0
	for pid in $ranks; do
		kill -0 "$pid" 2>/dev/null || fail "rank $rank stopped: $(tail -n 1 rank$rank.log)"
		rank=$((rank + 1))
	done
}

# wait_until SECONDS WHAT COMMAND...: polls, and watches the ranks.
wait_until() {
	tenths=$(($1 * 10))
	what=$2
	shift 2
	until "$@"; do
		check_ranks
		[ $tenths -gt 0 ] || fail "waited too long for $what"
		tenths=$((tenths - 1))
		bounded 5 sleep 0.1
	done
}

last() { # last FIELD: of the newest step's line
	awk -v field="$1" '$1 == "step" { value = $field } END { print value + 0 }' rank0.log
}

reached() {
	[ "$(last 2)" -ge "$1" ]
}

has_address() {
	grep -q '^train: address ' rank0.log
}

# The loss of steps that all began after now.
loss_from_now() {
	wait_until 60 "the next steps" reached $(($(last 2) + 10))
	loss=$(last 4)
}

start_ranks() {
	say "\$ export FRAG_JOB_ID=demo-$$ WORLD_SIZE=$world"
	say "\$ for r in 0 1 2 3; do" \
		"RANK=\$r train --stage $stage --forever --every 5 --pause-ms 20 >rank\$r.log & done"
	rank=0
	while [ $rank -lt $world ]; do
		FRAG_JOB_ID=demo-$$ WORLD_SIZE=$world RANK=$rank \
			"$build/docs/examples/train" --stage $stage --forever --every 5 \
			--pause-ms 20 >rank$rank.log 2>&1 &
		ranks="$ranks $!"
		rank=$((rank + 1))
	done
	wait_until 60 "the ranks to meet" has_address
	address=$(sed -n 's/^train: address //p' rank0.log)
}

# ---- the tour ----

tmp=$(mktemp -d "${TMPDIR:-/tmp}/frag-demo.XXXXXX") || fail "no temporary folder"
tmp=$(cd "$tmp" && pwd -P)
cd "$tmp" || fail "cannot enter $tmp"
mkdir frag
say "A tour of fragfs: the state of a running training job as files.  All of this is real:"
say "four processes, a language model that learns to predict characters of Alice in Wonderland."

title "Four ranks share the optimizer's state by ZeRO stage $stage; the loss falls."
start_ranks
wait_until 60 "the first steps" reached 50
show 'sed -n "1p; /^step/p" rank0.log | head -n 11'

title "Any process may mount it.  The job was not told, and does not wait."
show "fragfs $address $tmp/frag -o rw"
say "\$ cd $tmp"
show 'ls frag frag/params frag/params/layers.1.weight'

title "What a parameter is, and where its pieces are: on several ranks, put together when read."
show 'cd frag/params/layers.1.weight && head shape dtype numel group'
show 'cat frag/params/layers.1.weight/fragments'

title "Eight numbers of the fp32 master: four of rank 1, four of rank 2.  The job trains on."
show 'dd if=frag/params/layers.1.weight/fp32 bs=4 skip=504 count=8 status=none | od -A d -t f4'
if python3 -c 'import numpy' 2>/dev/null; then
	show "python3 -c 'import numpy
w = numpy.load(\"frag/params/layers.1.weight/fp32.npy\")
print(w.shape, w.dtype, abs(w).max())
print(w.ravel()[504:512])'"
else
	say "(No numpy for python3 here: it would read frag/params/layers.1.weight/fp32.npy.)"
fi

title "Gradients, and Adam's moments."
show 'od -A d -t f4 -N 16 frag/params/head.bias/grad'
show 'od -A d -t f4 -N 16 frag/params/head.bias/exp_avg_sq'
show 'cd frag/groups/0 && head lr beta1 weight_decay'
show 'cat frag/step; sleep 1; cat frag/step'

title "The job at a glance."
show 'fragctl status frag'

title "Surgery.  A learning rate of 0 holds the job still: hyper-parameters are files too."
show 'for g in 0 1; do echo 0 >frag/groups/$g/lr || exit; done; cat frag/groups/?/lr'
loss_from_now
before=$loss
say "head.scale is one number, on one rank; every rank has a bf16 copy.  Its sign is turned:"
show 'cp frag/params/head.scale/fp32 saved; od -A n -t f4 saved'
show "printf '\\000\\000\\200\\277' | dd of=frag/params/head.scale/fp32 conv=notrunc status=none"
show 'od -A n -t f4 frag/params/head.scale/fp32'
loss_from_now
during=$loss
show 'cp saved frag/params/head.scale/fp32'
loss_from_now
show 'tail -n 7 rank0.log'
awk -v a="$before" -v b="$during" -v c="$loss" 'BEGIN { exit !(b > a + 0.5 && c < a + 0.5) }' ||
	fail "the edit did not change the loss as it must: $before, then $during, then $loss"
show 'for g in 0 1; do echo 0.003 >frag/groups/$g/lr || exit; done'

title "Unmounting and stopping.  The ranks finish their step and leave."
show "fusermount3 -u $tmp/frag"
say "\$ kill$ranks"
kill $ranks
rank=0
for pid in $ranks; do
	wait "$pid" || fail "rank $rank ended badly: $(tail -n 1 rank$rank.log)"
	rank=$((rank + 1))
done
ranks=
show 'tail -n 1 rank0.log'
