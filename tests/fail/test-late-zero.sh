#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank starts while rank 0 of an earlier job of the same name is still there, as when a launcher starts a job again: it
# joins the rank 0 that comes, at another address.
. "$top_srcdir/tests/lib.sh"
train=$top_builddir/docs/examples/train
export WORLD_SIZE=2 FRAG_JOB_ID=late-$$
take_port
port=$FRAG_PORT
unset FRAG_PORT

# is_at PORT: the job file says so.
is_at() {
	"$top_builddir/fragctl" jobs | grep -q ":$1 "
}
RANK=0 FRAG_PORT=$port "$train" --forever >old.log 2>&1 &
old=$!
started $old
wait_until 60 is_at $port || fail "no job: $(cat old.log)"
stop_process $old
RANK=1 "$train" --steps 3 >1.log 2>&1 &
one=$!
started $one
wait_until 60 grep -q "looking for it at .*:$port" 1.log || fail "rank 1: $(cat 1.log)"
kill -9 $old
wait $old || :
take_port $((port + 1))
RANK=0 "$train" --steps 3 >0.log 2>&1 &
zero=$!
started $zero
for pid in $zero $one; do
	wait_until 60 is_over $pid || fail "the job does not train: $(tail -n 5 0.log 1.log)"
	wait $pid || fail "a rank exited with $?: $(tail -n 5 0.log 1.log)"
done
