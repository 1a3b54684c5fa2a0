#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fragfs(5) has every file of a mount, and every path in it is in a mount: jobs, one with an arena, and checkpoints. A
# new file in the tree is a line ".It Pa PATH" in the page, with {A,B} for several; a new word in capitals is a row of
# `regex` and of `example` below; a path that only another kind of mount has needs that mount at the end.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
page=$top_srcdir/docs/fragfs.5

# One pattern a line, braces expanded.
sed -n '/^\.Sh FILES/,/^\.Sh TIMES/s/^\.It Pa //p' "$page" | sed 's/ , /\n/g' | awk '
	match($0, /{.*}/) {
		n = split(substr($0, RSTART + 1, RLENGTH - 2), part, ",")
		for (i = 1; i <= n; i++)
			print substr($0, 1, RSTART - 1) part[i] substr($0, RSTART + RLENGTH)
		next
	}
	{ print }' | sort -u >patterns
[ "$(wc -l <patterns)" -gt 50 ] || fail "patterns: $(cat patterns)"
cp patterns unseen

hypers='lr|beta1|beta2|eps|weight_decay|step|momentum|dampening'
# regex: prints what a pattern matches, in a listing without parts, in which now/ and buffers/ are params/.
regex() {
	sed -e 's/[].[]/\\&/g' -e "s/\<STATE\>/($states)/" -e 's/\<G\\\.S\>/[0-9]+\\.[0-9]+/' -e 's/\<[RG]\>/[0-9]+/' \
		-e "s/\<HYPER\>/($hypers)/" -e 's/\<NNNNN\>/[0-9]{5}/g' -e 's/\<\(NAME\|INDEX\|SLICE\)\>/[^\/]+/' \
		-e 's/.*/^&$/'
}
# example: prints a file that a pattern names, for patterns of files that are not listed.
example() {
	sed -e "s|\<NAME\>|$name|" -e 's/\<STATE\>/fp32/' -e 's/\<G\.S\>/0.0/' -e 's/\<[RG]\>/0/' -e 's/\<HYPER\>/lr/' \
		-e 's/\<NNNNN\>/00001/g' -e "s/\<INDEX\>/$index/" -e 's/\<SLICE\>/0:1/' -e 's/\<PART\>/mp_rank_00/'
}

# check_page WHAT: checks the page against the mount.
check_page() {
	part=
	[ -d "$M/params" ] || part=$(ls "$M" | grep -m 1 mp_rank_)/
	for folder in "$M/${part}params"/*; do
		[ "$(wc -w <"$folder/shape")" = 0 ] || name=${folder##*/}
	done
	index=$(sed 's/[0-9][0-9]*/0/g; s/ /,/g' "$M/${part}params/$name/shape")
	states=$(for folder in "$M/${part}params"/* "$M/${part}buffers"/*; do
		[ ! -d "$folder" ] || ls "$folder/stats"
	done | sort -u | paste -s -d '|')
	(cd "$M" && find . ./.frag "./${part}export" "./${part}params/$name/stats" ! -type d) |
		sed 's|^\./||' >listed
	sed -E -e 's|^mp_rank_[0-9]+/||' -e 's#^(now|buffers)/#params/#' listed | sort -u >files
	regex <patterns >regexes
	! grep -Evf regexes files >unknown || fail "$1 has, and fragfs(5) has not: $(cat unknown)"
	while read -r pattern; do
		one=$(echo "$pattern" | regex)
		[ -e "$M/$(echo "$pattern" | example)" ] || grep -Eq -e "$one" files listed || echo "$pattern"
	done <unseen >left
	mv left unseen
	unmount
}

RANK=0 WORLD_SIZE=1 FRAG_JOB_ID=page-arena "$top_builddir/tests/mount/arena-job" >arena.log 2>&1 &
started $!
wait_until 60 grep -qs '^127' arena.log || fail "no job"
within 60 fragfs "$(grep -m 1 '^127' arena.log)" "$M" || fail "fragfs: $?"
check_page "a job with an arena"

train_job page
within 60 fragfs "$(fragctl jobs -H -o job,address | sed -n 's/^page	//p')" "$M" -o rw || fail "fragfs: $?"
check_page "a job"

for kept in z0-fp16-w1 z2-bf16-w3-sgd z3-bf16-w2-low-master z1-bf16-w4-mp2; do
	tar xzf "$top_srcdir/tests/data/checkpoints/ds0.19.8/$kept.tar.gz" --one-top-level=$kept
	checkpoint=$(dirname "$(find $kept -name '*model_states.pt' | head -n 1)")
	within 60 fragfs "$checkpoint" "$M" || fail "fragfs: $?"
	check_page "$kept"
done
[ ! -s unseen ] || fail "no mount has, but fragfs(5): $(cat unseen)"
