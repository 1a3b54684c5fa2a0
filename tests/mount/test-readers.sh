#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A user with only the key for readers mounts a job and reads it, by messages too, but cannot mount it for writing; a
# mount that does not write only uses that key; the key of another job opens nothing.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
fragctl key job.key
fragctl key --readers job.key >readers.key
fragctl key other.key
fragctl key --readers other.key >others.key
chmod 600 ./*.key

FRAG_KEY_FILE=$T/job.key FRAG_JOB_ID=readers-$$ RANK=0 WORLD_SIZE=1 \
	"$top_builddir/tests/fail/tear-job" 2 2000 >job.log 2>&1 &
started $!
wait_until 60 grep -q '^127' job.log || fail "no job"
address=$(grep -m 1 '^127' job.log)

mount_with() { # mount_with OPTIONS
	within 60 "$top_builddir/fragfs" "$address" "$M" -o "$1"
}

exec 7<job.key
for options in key=readers.key key=job.key key=/dev/fd/7; do
	mount_with "transport=zmq,$options" || fail "$options: $?"
	[ "$(within 60 cat "$M/params/p0/fp32" | wc -c)" = $((53 * 19 * 4)) ] || fail "$options: read"
	within 60 cat "$M/ranks/0/params/p2/exp_avg" >bytes || fail "$options: a rank's own"
	unmount
done
exec 7<&-
mount_with rw,key=job.key || fail "rw: $?"
within 60 head -c $((53 * 19 * 4)) /dev/zero >"$M/params/p0/fp32" || fail "rw: write"
unmount

refused 'readers.key: it is for readers only (-o ro)' \
	"$top_builddir/fragfs" "$address" "$M" -o rw,key=readers.key
refused 'key' "$top_builddir/fragfs" "$address" "$M" -o key=others.key,timeout=3
! grep -q 'may only read' job.log || fail "an honest reader was refused"

# The readers' key starts no rank.
FRAG_KEY_FILE=$T/readers.key FRAG_JOB_ID=no-$$ RANK=0 WORLD_SIZE=1 \
	"$top_builddir/tests/fail/tear-job" 2 2000 >rank.log 2>&1 && fail "a rank with the readers' key"
grep -q 'it is for readers only' rank.log || fail "it did not say why"
