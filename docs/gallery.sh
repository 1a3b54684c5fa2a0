#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gallery.sh [BUILD_DIR]: makes docs/gallery.md and the pictures in docs/gallery anew.  A small job trains meanwhile, and one with
# an arena; what is in the pages is what the programs print.  tmux, if it is there, shows the live view of top.
set -eu

fail() {
	echo "gallery: $*" >&2
	exit 1
}

docs=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:-build}" 2>/dev/null && pwd) || fail "${1:-build}: no such folder"
make -s -C "$build" fragfs fragctl docs/examples/train tests/mount/arena-job
PATH=$build:$build/docs/examples:$build/tests/mount:$PATH
LC_ALL=C.UTF-8 COLUMNS=96 LINES=24 FRAGFS=$build/fragfs
export PATH LC_ALL COLUMNS LINES FRAGFS
tmp=$(mktemp -d)
pids=

leave() {
	trap - EXIT
	tmux -S "$tmp/tmux" kill-server 2>/dev/null || :
	fusermount3 -u "$tmp/frag" 2>/dev/null || :
	for pid in $pids; do
		kill "$pid" 2>/dev/null || :
	done
	for pid in $pids; do
		wait "$pid" 2>/dev/null || :
	done
	rm -r "$tmp"
}
trap leave EXIT
trap 'exit 130' INT TERM HUP

# wait_for COMMAND...: a minute at most.
wait_for() {
	tries=600
	until "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || fail "$*: in vain"
		sleep 0.1
	done
}

# show COMMAND...: it, and what it prints; diff ends with 3 where things differ.
show() {
	printf '```\n$'
	for word in "$@"; do
		case $word in *[][*]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
	done
	echo
	"$@" 2>&1 | sed "s|$tmp/||g"
	printf '```\n'
}

trains() {
	grep -q "^step  *$1 " "$tmp/rank0.log"
}

for rank in 0 1 2 3; do
	FRAG_JOB_ID=gallery WORLD_SIZE=4 RANK=$rank train --stage 2 --forever --every 1 --pause-ms 50 >"$tmp/rank$rank.log" 2>&1 &
	pids="$pids $!"
done
FRAG_JOB_ID=gallery-arena WORLD_SIZE=1 RANK=0 arena-job >"$tmp/arena.log" 2>&1 &
pids="$pids $!"
wait_for trains 20
mkdir "$tmp/frag"
cd "$tmp"
fragfs "$(fragctl jobs -H -o job,address | sed -n 's/^gallery	//p')" frag -o rw
cp frag/export/model.safetensors before.safetensors

# The screen of top after some seconds, of which it shows the history; without tmux one look.
top_screen() {
	if command -v tmux >/dev/null; then
		tmux -S tmux -f /dev/null new-session -d -x 118 -y 16 'env -u COLUMNS -u LINES fragctl top -j frag'
		sleep 12
		tmux -S tmux capture-pane -p
		tmux -S tmux send-keys q
	else
		fragctl top -j frag --once
	fi
}

page() {
	cat <<'END'
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made by docs/gallery.sh: change that, and run it again. -->
# Gallery

What the programs print. A small language model trains on four ranks, by ZeRO stage 2, and is mounted at `frag`;
`sh docs/gallery.sh` makes this page anew.

## Which ranks there are, and what they do

END
	show fragctl status frag
	printf '\nThe same, live, with norms of param groups and their history: `fragctl top` in a terminal.\n\n```\n'
	top_screen
	printf '```\n\n## Which rank has what\n\n'
	show fragctl map -j frag
	printf '\n`fragctl map -j frag -s map.svg` draws it for a page:\n\n![Which rank has which part of each parameter](gallery/map.svg)\n'
	printf '\n## Which parameter, which element, which rank\n\nA NaN comes into a gradient, or, here, is written:\n\n'
	fragctl freeze frag
	show fragctl set -j frag 'layers.1.weight/exp_avg[3,4]' nan
	echo
	show fragctl stats -j frag '*/exp_avg'
	echo
	show fragctl get -j frag 'layers.1.weight/exp_avg[2:5,:8]'
	fragctl set -j frag 'layers.1.weight/exp_avg[3,4]' 0
	fragctl thaw frag
	printf '\n## What training has changed\n\nA copy of `frag/export/model.safetensors`, made a moment ago, against the job:\n\n'
	show fragctl diff before.safetensors frag -o name,changed,relative,norm_a,norm_b,max_diff,at
	printf '\n## What happens\n\n'
	while sleep 0.5; do
		fragctl set -j frag 'head.bias/fp32[:4]' '*= 0.5' 2>/dev/null || break
	done &
	show fragctl watch -j frag -n 6 edit freeze thaw
	kill $!
	printf '\n## Memory of low-precision parameters\n\nA job that keeps them in an arena, where they come, go and are moved together:\n\n'
	show fragctl arena -j gallery-arena
}

page >gallery.md
fragctl map -j frag -s map.svg
sed '1a<!-- SPDX-License-Identifier: Apache-2.0 -->' map.svg >"$docs/gallery/map.svg"
cp gallery.md "$docs/gallery.md"
