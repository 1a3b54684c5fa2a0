#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# groups/G/kind and fragctl map say how the ranks of a group lie in the device mesh that the parameters' coordinates
# describe.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
export LC_ALL=C

# run ARGUMENT...: a job of mesh-job, mounted.
run() {
	rm -f rank?.log
	for rank in 0 1 2 3; do
		RANK=$rank WORLD_SIZE=4 FRAG_JOB_ID=mesh-$$-$# "$top_builddir/tests/mount/mesh-job" "$@" >rank$rank.log 2>&1 &
		started $!
		eval "rank$rank=$!"
	done
	wait_until 60 grep -q '^127' rank0.log || fail "no job"
	within 60 fragfs "$(grep '^127' rank0.log)" "$M" || fail "no mount"
}

end() {
	unmount
	kill "$rank0" "$rank1" "$rank2" "$rank3"
	wait "$rank0" "$rank1" "$rank2" "$rank3" 2>/dev/null || :
}

kinds() {
	for group in 0 1 2; do
		echo "$(cat "$M/groups/$group/kind") $(tail -n +2 "$M/groups/$group/ranks" | cut -f 1 | tr '\n' ' ')"
	done | sort
}

run
[ "$(kinds)" = "zero2 data 0 1 2 3 
zero2 expert-data 0 2 
zero2 expert-data 1 3 " ] || fail "kinds: $(kinds)"
within 60 fragctl map -j "$M" >out || fail "map: $?"
grep -q '^group [0-2]  zero2 data  ranks 0 1 2 3$' out && grep -q '^group [0-2]  zero2 expert-data  ranks 1 3$' out ||
	fail "map: $(cat out)"
# The plan of such a job is that of one of its parts.
got=0
within 60 fragctl plan "$M" >out 2>&1 || got=$?
[ $got = 1 ] && grep -q 'is cut by model parallelism (ep=[01])' out || fail "plan: $(cat out)"
# A tab in a state's key begins no column.
within 60 cat "$M/.frag/stats" >out || fail ".frag/stats: $?"
[ "$(awk -F '\t' 'NR > 1 { print NF, $2 }' out | sort | uniq -c | tr -s ' ')" = ' 3 18 a%09key
 3 18 fp32' ] || fail ".frag/stats: $(cat out)"
end

run data-first
[ "$(kinds)" = "zero2 data 0 1 2 3 
zero2 expert-data 0 1 
zero2 expert-data 2 3 " ] || fail "kinds: $(kinds)"
end
