#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A job is mounted as NAME:PORT, killed, and started again where NAME has another address: the mount finds it there.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse

if [ -z "${MOVED_INSIDE-}" ]; then
	[ "$(id -u)" = 0 ] || skip "another /etc/hosts is for root"
	command -v ip >/dev/null || skip "no ip(8)"
	why=$(unshare -mn true 2>&1) || skip "no namespaces: $why"
	rmdir "$M"
	MOVED_INSIDE=1 exec unshare -mn sh "$top_srcdir/tests/fail/test-moved.sh"
fi
ip link set lo up
ip addr add 10.79.0.1/32 dev lo && ip addr add 10.79.0.2/32 dev lo
echo '10.79.0.1 master.test' >hosts
why=$(mount --bind hosts /etc/hosts 2>&1) || skip "no bind mount: $why"
getent hosts master.test >resolved && grep -q '^10\.79\.0\.1 ' resolved || skip "/etc/hosts is not asked for names"
export FRAG_JOB_ID=moved-$$ FRAG_PORT=21017

# start ADDRESS: of two ranks.
start() {
	for rank in 0 1; do
		MASTER_ADDR=$1 RANK=$rank WORLD_SIZE=2 "$top_builddir/docs/examples/train" --forever --pause-ms 20 >rank$rank.log 2>&1 &
		started $!
		eval "rank$rank=$!"
	done
}
listens() {
	grep -qs "^train: address $1:" rank0.log
}
both_are() {
	for rank in 0 1; do
		grep -q "^$1" "$M/ranks/$rank/state" || return 1
	done
}

start 10.79.0.1
wait_until 60 listens 10.79.0.1 || fail "no job: $(cat rank0.log)"
within 60 fragfs master.test:21017 "$M" -o rw,timeout=2 || fail "fragfs: $?"
kill_at_once "$rank0" "$rank1"
wait "$rank0" "$rank1" || :
wait_until 60 both_are lost || fail "not lost: $(cat "$M"/ranks/*/state)"
echo '10.79.0.2 master.test' >hosts
start 10.79.0.2
wait_until 60 listens 10.79.0.2 || fail "not started again: $(cat rank0.log)"
wait_until 60 both_are alive || fail "not found where it is now: $(cat "$M"/ranks/*/state "$M/.frag/log")"
file=$(ls -S "$M"/params/*/fp32 | head -n 1)
within 60 cat "$file" >got || fail "$file: $?"
grep -q '10\.79\.0\.2' "$M/ranks/0/address" || fail "rank 0 is at $(cat "$M/ranks/0/address")"
unmount
