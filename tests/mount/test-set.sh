#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The owners carry out an expression of .frag/control: every holder has the result, replicas and low-precision copies
# too; the result is the same in every layout and tier, and no bytes move to the mount.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"
export FRAGFS="$top_builddir/fragfs"

# moved: prints the bytes of states that the mount has read and written.
moved() {
	awk '$1 ~ /^fragfs_(read|owner_memory|owner_message|owner_round|commit)_bytes_total$/ { n += $2 } END { print n + 0 }' \
		"$M/.frag/metrics"
}

tell() { # tell LINE
	echo "$1" >"$T/line"
	within 60 cp "$T/line" "$M/.frag/control"
}

cannot() { # cannot ERROR LINE
	echo "$2" >"$T/line"
	refused "$1" cp "$T/line" "$M/.frag/control"
}

# compare NAME KEY: compares with the first job's state after the same edit, and with the ranks' memory.
compare() {
	edits=$((edits + 1))
	cat "$M/params/$1/$2" >new
	ask change "$1" "$2" 0 "$T/new"
	ask check
	[ -e "want.$edits" ] || cp new "want.$edits"
	cmp new "want.$edits" || fail "$what: $1/$2 differs from the first job's"
}

# owners NAME KEY SLICE EXPRESSION
owners() {
	before=$(moved)
	tell "set params/$1/$2$3 $4" || fail "$what: set $1/$2$3 $4"
	[ "$(moved)" = "$before" ] || fail "$what: set $1/$2$3 $4 moves bytes: $before, $(moved)"
	compare "$1" "$2"
}

# master PARAM KEY SLICE EXPRESSION: arithmetic on masters whose low-precision copies are on other ranks is refused, and
# done by fragctl.
master() {
	[ "$apart" = no ] || cannot "Operation not supported" "set params/$1/$2$3 $4"
	[ "$apart" = no ] || ask check
	before=$(moved)
	within 60 fragctl set -j "$M" "$1/$2$3" "$4" || fail "$what: fragctl set $1/$2$3 $4"
	[ "$(moved)" = "$before" ] || [ "$apart" = yes ] || fail "$what: fragctl set $1/$2$3 $4 moves bytes"
	compare "$1" "$2"
}

set_some() { # set_some LAYOUT WORLD
	edits=0
	start_job "$1" "$2" small
	mount_job rw
	owners cube fp32 '' '= 0.125'
	master cube fp32 '' '*= 0.3'
	master cube fp32 '[::2, 1:, ::-3]' '+= 1e-3'
	owners cube fp32 '[-1]' '= -2.5'
	master embed.weight fp32 '' '/= 3'
	owners embed.weight exp_avg '' '*= 0.5'
	owners embed.weight exp_avg '[:,::7]' '-= 4'
	owners odd.w exp_avg '[3:9:2,5]' zero
	grep -q '"operation":"\*= 0.5",.*"outcome":"committed"' "$M/.frag/log" || fail "$what: no event names the operation"
	grep -q '"outcome":"aborted"' "$M/.frag/log" && fail "$what: a refused expression has an event"
	awk '$1 == "fragfs_commit_errors_total" && $2 { exit 1 }' "$M/.frag/metrics" || fail "$what: a refused one is an error"
	unmount
	end_job
}

apart=no
set_some 0 1
set_some 0 2
set_some 3 3
set_some fsdp2 3
set_some cuts 4
on_nvme set_some 3 2
apart=yes
set_some 1 3
on_nvme set_some 2 2

# An open file keeps its bytes.
start_job 3 2 small
mount_job rw
cat "$M/params/embed.weight/exp_avg" >old
exec 5<"$M/params/embed.weight/exp_avg"
dd bs=4096 count=1 iflag=fullblock status=none <&5 >new
tell 'set params/embed.weight/exp_avg += 1' || fail "set while it is read"
cat <&5 >>new
exec 5<&-
cmp old new || fail "an open file has two generations"
! cmp -s old "$M/params/embed.weight/exp_avg" || fail "set while it was read has changed nothing"
unmount
end_job

# A refused edit changes nothing.
start_job 3 2 small
mount_job rw
cat "$M/params/cube/fp32" >old
for bad in 'set' 'set ' 'set params/cube/fp32' 'set cube/fp32 zero' 'set params/cube/fp32 two' 'set params/cube/fp32[0 zero' \
	'set params/cube/fp32[0]zero' 'set params/cube/fp32 *=' 'set params/cube/fp32 *= 2 3' 'set params//fp32 zero' \
	'set params/cube zero' 'set params/cube/ zero' 'set  params/cube/fp32 %= 2'; do
	cannot "Invalid argument" "$bad"
done
for absent in 'cubic/fp32' 'cube/fp33' 'cube/shape' 'cube/fp32[99999]' 'cube/fp32[x]' 'cube/stats'; do
	cannot "No such file" "set params/$absent zero"
done
cannot "Numerical result out of range" 'set params/cube/fp32 = 1e99'
cannot "Invalid argument" 'set params/cube/fp32 /= 0'
grep -q 'fp32 /= 0: a division by zero' "$M/.frag/log" || fail "no line says that it divides by zero"
refused '^fragctl: /= -0: a division by zero' fragctl set -j "$M" cube/fp32 '/= -0'
refused 'fragctl: cube/fp32.*%0D\|fragctl: .*= 1%0Dx' fragctl set -j "$M" cube/fp32 "$(printf '*= 1\rx')"
refused 'has no such number' fragctl set -j "$M" cube/fp32 '*= 1e400'
cmp old "$M/params/cube/fp32" || fail "a refused line has changed bytes"
awk 'BEGIN { printf "set params/cube/fp32 ="; for (i = 0; i < 600; i++) printf " "; print "1" }' >long
refused "File name too long" cp long "$M/.frag/control"
grep -q 'a set line has 511 bytes at most' "$M/.frag/log" || fail "no line says how long a line may be"
grep -q 'a pattern has' "$M/.frag/log" && fail "a long edit is taken for a watch"
grep -q 'expected "set params/NAME/STATE\[SLICE\] EXPRESSION"' "$M/.frag/log" || fail "no line says what is expected"
tell 'set params/cube/fp32[0:0] *= 2' || fail "a slice without elements"
unmount
mount_job
cannot "Read-only file system" 'set params/cube/fp32 zero'
unmount
end_job
