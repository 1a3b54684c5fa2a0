#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fragctl place: states of a job that trains move between NVMe and memory, to and fro, while they are read and edited;
# the losses are those of a job in which no state moves.  A state that cannot move is refused, with the reason.
# shellcheck disable=SC2086 # lists of process ids are split where they are used
. "$top_srcdir/tests/mount/train.sh"
need_fuse
mkdir "$T/swap"
export FRAG_PINNED_MEM=64K

place() {
	fragctl place -j "$M" "$@"
}

# tiers STATE: prints the tiers of a state of the parameter that is large enough for the disk.
tiers() {
	awk -v state="$1" '$2 == state { print $3 }' "$P/fragments" | sort -u
}

# ---- to and fro, under readers

start still --steps 120
finish
start moved --forever --pause-ms 2 --swap "$T/swap"
mount_it rw
P=$(find "$M/params" -name exp_avg -printf '%s %h\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)
[ "$(tiers exp_avg)" = swap ] || fail "at first: $(tiers exp_avg)"
(
	while [ ! -e "$T/ending" ]; do
		for file in "$M"/params/*/fp32 "$M"/params/*/exp_avg "$M"/ranks/*/params/*/exp_avg_sq "$P/stats/exp_avg/norm"; do
			cat "$file" || [ -e "$T/ending" ] || echo "$file" >>"$T/failed"
			echo >>"$T/reads"
		done
	done >/dev/null 2>cat.err
) &
reader=$!
tier=swap
until [ $tier = host ] && [ -e "$T/reads" ] && [ "$(wc -l <"$T/reads")" -ge 8 ]; do
	[ $tier = host ] && tier=swap || tier=host
	place 'params/*/exp_avg*' $tier || fail "to $tier"
	[ "$(tiers exp_avg) $(tiers exp_avg_sq) $(tiers fp32)" = "$tier $tier swap" ] ||
		fail "after $tier: $(tiers exp_avg) $(tiers exp_avg_sq) $(tiers fp32)"
	kill -0 $reader || fail "nobody reads"
done
place '*/*' host || fail "all to host"
[ "$(tiers grad) $(tiers fp32)" = "host host" ] || fail "not all in memory"
grep -qx 'state_bytes 0' "$M/ranks/0/swap" || fail "still on NVMe: $(cat "$M/ranks/0/swap")"
place '*/fp32' swap || fail "back"
place -H -o rank,waiting,failed,error >table
printf '0\t0\t0\tnone\n1\t0\t0\tnone\n' | cmp - table || fail "the table: $(cat table)"
wait_until 60 sh -c "[ \$(cat '$M/step') -ge 5 ]" || fail "it does not train"
touch "$T/ending"
kill -TERM $ranks
finish
wait $reader || :
[ ! -e "$T/failed" ] || fail "not read: $(cat "$T/failed" cat.err)"
losses still >still.losses
losses moved | head -n 120 >moved.losses
[ "$(wc -l <moved.losses)" -ge 3 ] || fail "too few losses: $(cat moved.losses)"
head -n "$(wc -l <moved.losses)" still.losses | cmp - moved.losses || fail "other losses where states have moved"
unmount

# ---- edits while states move; an open file; and orders of a program that is killed

start edited --stage 3 --forever --pause-ms 2 --swap "$T/swap" --swap-params
mount_it rw
printf 'leaf\tparameters\nlayers.0\t2\nlayers.1\t2\n' | cmp - "$M/.frag/leaves" || fail "leaves: $(cat "$M/.frag/leaves")"
if command -v python3 >/dev/null; then
	within 60 python3 - "$M/params" <<'END' || fail "leaves of parameters"
import errno, os, sys
for name in os.listdir(sys.argv[1]):
    folder = os.path.join(sys.argv[1], name)
    assert "user.frag.leaf" not in os.listxattr(folder), name
    if name.startswith("layers."):
        assert os.getxattr(folder, "user.frag.leaf").decode() == name.rpartition(".")[0], name
        continue
    try:
        raise SystemExit(name + " is in " + os.getxattr(folder, "user.frag.leaf").decode())
    except OSError as e:
        assert e.errno == errno.ENODATA, (name, e)
END
fi
wait_until 60 sh -c "[ \$(cat '$M/step') -ge 2 ]" || fail "it does not train"
(
	while [ ! -e "$T/enough" ]; do
		place 'params/*/exp_avg' host && place 'params/*/exp_avg' swap || exit 1
	done
) 2>orders.err &
orders=$!
size=$(stat -c %s "$P/exp_avg")
yes 1234 | head -c "$size" >ones
for i in 1 2 3; do
	cp ones "$P/exp_avg" || fail "edit $i"
done
touch "$T/enough"
wait $orders || fail "an order: $(cat orders.err)"
fragctl place -j "$M" 'params/*/exp_avg' host &
kill -KILL $!
wait $! 2>/dev/null || :
place 'params/*/exp_avg' swap || fail "after an order that was killed"
echo 60 >"$M/.frag/freeze"
cp "$P/exp_avg" before
exec 3<"$P/exp_avg"
head -c 4096 <&3 >open
place '*/exp_avg' host || fail "in a freeze"
cat <&3 >>open
exec 3<&-
cmp before open || fail "an open file is not what it was before the move"
cp ones "$P/exp_avg" || fail "an edit in a freeze"
place '*/exp_avg' swap || fail "back, in a freeze"
cmp ones "$P/exp_avg" || fail "the edit is not what it was"
[ "$(tiers exp_avg)" = swap ] || fail "not back"

# ---- fragctl place for programs; and an order that another one replaces

place -J '*/exp_avg' host >json || fail "with --json"
if command -v python3 >/dev/null; then
	python3 - json <<'END' || fail "$(cat json)"
import json, sys
told = json.load(open(sys.argv[1]))
assert told["output_version"]["command"] == "fragctl place", told
place = told["place"]
assert (place["states"], place["tier"]) == ("*/exp_avg", "host"), told
assert [r["rank"] for r in place["ranks"]] == [0, 1], told
assert all(r["waiting"] == r["failed"] == 0 and r["moved_bytes"] > 0 for r in place["ranks"]), told
END
fi
place '*/exp_avg' swap || fail "back again"

# replaced: an order is given while another waits for a boundary; if the boundary came first, tries again
replaced() {
	place -J '*/exp_avg' host >json 2>err &
	order=$!
	wait_until 60 sh -c "awk 'NR > 1 && (\$2 || \$4) { n++ } END { exit !n }' '$M/.frag/place'"
	echo 'place params/*/exp_avg swap' >"$M/.frag/control"
	rc=0
	wait $order || rc=$?
	place '*/exp_avg' swap || fail "the order that has replaced another"
	[ $rc = 1 ]
}
echo 0 >"$M/.frag/freeze"
kill -TERM $ranks
finish
unmount
start slow --stage 3 --forever --pause-ms 3000 --swap "$T/swap"
mount_it rw
wait_until 60 sh -c "[ \$(cat '$M/step') -ge 1 ]" || fail "it does not train"
try=0
until replaced; do
	[ $((try += 1)) -lt 10 ] || fail "an order that is replaced ends with $rc"
done
grep -qx 'fragctl: \*/exp_avg: not all are in host: another order has replaced this one' err || fail "$(cat err)"
grep -q '"tier": *"host"' json || fail "no JSON: $(cat json)"

# ---- states that cannot move

! place 'params/*/nothing' host 2>err || fail "no such state"
grep -q 'no rank has such a state' err || fail "$(cat err)"
! place 'params/*/bf16' swap 2>err || fail "low precision"
grep -q 'a rank cannot move one of them to swap' err || fail "$(cat err)"
! place 'params/*/exp_avg' device 2>err || fail "a device"
grep -q 'rank [01]: group 0 sub 0 exp_avg: the rank has no devices' "$M/.frag/log" || fail "$(cat "$M/.frag/log")"
! place 'params/*/exp_avg' tape 2>err || fail "no tier"
grep -q 'host, swap or device' err || fail "$(cat err)"
! echo 'place exp_avg swap' 2>/dev/null >"$M/.frag/control" || fail "no pattern"
! place "params/*/$(printf '%064d' 0)" host 2>err || fail "a long state"
grep -q 'the pattern of states has 63 bytes at most, that of names 127' err || fail "$(cat err)"
kill -TERM $ranks
finish
unmount
start memory --forever --pause-ms 2
mount_it rw,timeout=3
! place 'params/*/exp_avg' swap 2>err || fail "the trainer's pointer"
grep -q 'rank [01]: group 0 sub 0 exp_avg: the trainer has its address' "$M/.frag/log" || fail "$(cat "$M/.frag/log")"
place 'params/*/exp_avg' host || fail "it is there already"

# ---- a rank that is silent

stop_process ${ranks##* }
! place 'params/*/exp_avg' host 2>err || fail "a silent rank has moved"
grep -q 'rank 1: Connection timed out' err || fail "$(cat err)"

# ---- a rank that is killed before it has moved a state

place 'params/*/exp_avg' host 2>err &
order=$!
sleep 1
kill -KILL ${ranks##* }
rc=0
wait $order || rc=$?
[ $rc = 1 ] && grep -q '^fragctl: rank 1: ' err || fail "a rank was killed: $rc: $(cat err)"
! fragctl place -j "$M" -o rank,foo '*/*' host 2>err || fail "no such column"
grep -q 'foo: a column' err || fail "$(cat err)"
kill -KILL $ranks 2>/dev/null || :
drop_mount "$M"
wait_until_gone

# ---- the mount ends while an order waits, a rank of which is lost

mount_fake rw
place 'params/*/fp32' host 2>err &
order=$!
sleep 1
drop_mount "$M"
rc=0
wait $order || rc=$?
[ $rc = 1 ] && grep -q '^fragctl: .*/.frag/place: ' err || fail "the mount has ended: $rc: $(cat err)"
