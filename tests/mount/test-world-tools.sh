#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Common tools on a mount, of a checkpoint and of a frozen job: each of them copies the same bytes, and a second rsync
# moves nothing.  On a job that stands before its gradients are valid they fail for gradients alone, and say so.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
missing=
for tool in ls find du tar cp rsync diff md5sum sha256sum xxd od dd head split; do
	command -v $tool >/dev/null || missing="$missing $tool"
done
have() {
	case "$missing " in *" $1 "*) return 1 ;; esac
}

# run WHAT COMMAND...: the command ends with 0, and prints no complaint.
run() {
	what=$1
	shift
	within 120 "$@" 2>why || fail "$tree: $what: $?: $(cat why)"
	[ ! -s why ] || fail "$tree: $what: $(cat why)"
}

# entries: prints those of the mount's folder but `events`, whose read waits.
entries() {
	(cd "$M" && ls | grep -vx events)
}

# check_tools TREE: runs the tools on a mount whose files do not change.
check_tools() {
	tree=$1 top=$(entries)
	rm -rf plain out
	mkdir plain out
	# shellcheck disable=SC2086
	run cp sh -c 'cd "$0" && cp -r "$@"' "$M" $top "$T/plain"
	files=$(cd plain && find . -type f | sort)
	[ "$(echo "$files" | wc -l)" -gt 20 ] || fail "$tree: cp has copied $files"
	for name in $top; do
		run "diff -r $name" diff -r "$M/$name" "plain/$name" >difference || fail "$tree: $(head difference)"
	done
	run find find "$M" -path "$M/.frag" -prune -o -type f -print >found
	[ "$(sed "s|^$M|.|" found | grep -vx ./events | sort)" = "$files" ] || fail "$tree: find"
	run 'ls -lR' ls -lR "$M" >listed
	[ "$(grep -c '^-' listed)" -ge "$(echo "$files" | wc -l)" ] || fail "$tree: ls -lR"
	# shellcheck disable=SC2086
	run du sh -c 'cd "$0" && du -s --apparent-size -B1 "$@" | cut -f 2-' "$M" $top >du
	[ "$(cat du)" = "$top" ] || fail "$tree: du: $(cat du)"

	# shellcheck disable=SC2086
	run tar tar cf out.tar -C "$M" $top
	tar xf out.tar -C out
	diff -r plain out >difference || fail "$tree: tar: $(head difference)"
	if have rsync; then
		# shellcheck disable=SC2086
		run rsync sh -c 'cd "$0" && rsync -a "$@"' "$M" $top "$T/synced/"
		diff -r plain synced >difference || fail "$tree: rsync: $(head difference)"
		# shellcheck disable=SC2086
		run 'a second rsync' sh -c 'cd "$0" && rsync -ai "$@"' "$M" $top "$T/synced/" >moved
		[ ! -s moved ] || fail "$tree: a second rsync moves $(cat moved)"
		chmod -R u+w synced && rm -r synced
	fi
	for sums in md5sum sha256sum; do
		(cd plain && find . -type f -exec $sums {} +) >sums
		run $sums sh -c "cd '$M' && $sums --quiet -c '$T/sums'"
	done

	# The largest state, in pieces.
	large=$(cd plain && find params -type f -size +0 -printf '%s %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-)
	for read in 'od -A x -t x1' 'head -c 1000' 'dd bs=777 status=none' 'dd bs=1 skip=3 count=100 status=none' 'xxd'; do
		have "${read%% *}" || continue
		run "$read" sh -c "$read <'$M/$large'" >from_mount
		sh -c "$read <'plain/$large'" >from_plain
		cmp from_mount from_plain || fail "$tree: $read of $large"
	done
	run split split -b 10007 "$M/$large" part.
	cat part.* | cmp - "plain/$large" || fail "$tree: split"
	rm part.*
	chmod -R u+w plain out && rm -r plain out
}

tar xzf "$top_srcdir/tests/data/checkpoints/ds0.19.8/z2-fp16-w3.tar.gz"
checkpoint=$(dirname "$(find z2-fp16-w3 -name '*model_states.pt' | head -n 1)")
within 60 fragfs "$checkpoint" "$M" || fail "fragfs: $?"
check_tools "a checkpoint"
unmount

# A job that trains, frozen.
train_job world
address=$(fragctl jobs -H -o address)
within 60 fragfs "$address" "$M" -o rw || fail "fragfs: $?"
within 60 fragctl freeze -t 600 "$M" || fail "freeze: $?"
check_tools "a frozen job"
within 60 fragctl thaw "$M"
unmount

# A job that stands: only gradients have no bytes.
for rank in 0 1; do
	RANK=$rank WORLD_SIZE=2 FRAG_JOB_ID=stands "$top_builddir/tests/fail/tear-job" 2 1000 1000 GRADS 3 >stands$rank.log &
	started $!
done
for rank in 0 1; do
	wait_until 60 grep -q stands stands$rank.log || fail "rank $rank does not stand"
done
within 60 fragfs "$(head -n 1 stands0.log)" "$M" -o timeout=5 || fail "fragfs: $?"
grads=$(find "$M/params" -name grad -o -name grad.npy | wc -l)
[ "$grads" -gt 0 ] || fail "no gradients"
# in_part STATUS COMMAND...: each line that the command prints is of gradients, and each gradient has one.
in_part() {
	want=$1 got=0
	shift
	within 120 "$@" 2>why || got=$?
	[ $got = "$want" ] && [ "$(grep -c '/grad[.:"]*' why)" -ge "$grads" ] || fail "$1: $got: $(cat why)"
	! grep -v '/grad\(\.npy\)\?[^/]*$\|rsync error:\|^$\|Exiting with failure' why || fail "$1: $(cat why)"
}
tree="a job that stands"
in_part 1 cp -r "$M/params" plain
in_part 2 tar cf out.tar -C "$M" params
run 'tar --exclude' tar cf out.tar --exclude='grad' --exclude='grad.npy' -C "$M" params
mkdir out
tar xf out.tar -C out
diff -r --exclude='grad' --exclude='grad.npy' plain out/params || fail "tar of a job that stands"
if have rsync; then
	in_part 23 rsync -a "$M/params/" synced/
	run 'rsync --exclude' rsync -a --exclude='grad' --exclude='grad.npy' "$M/params/" synced/
	diff -r --exclude='grad' --exclude='grad.npy' plain synced || fail "rsync of a job that stands"
fi
unmount
[ -z "$missing" ] || echo "not tried, since they are not installed:$missing"
