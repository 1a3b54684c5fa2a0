#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# While one process truncates and writes a file again and again, other processes find it whole: by read(2), sendfile(2),
# copy_file_range(2), mappings, cp, shutil.copyfile and tar; of a job and of a checkpoint.  TEST_ROUNDS: rounds of the
# writer.
. "$top_srcdir/tests/mount/lib.sh"
command -v python3 >/dev/null || skip "no python3 to map a file with"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"

# write_again FILE COMMIT: writes, by all ways in which O_TRUNC comes.
write_again() {
	round=0
	while [ $round -lt "${TEST_ROUNDS:-8}" ]; do
		: >"$1" || exit 1
		truncate -s 0 "$1" || exit 1
		if $2; then
			cat "$T/new" >"$1" || exit 1
			cp "$T/new" "$1" || exit 1
		else
			! head -c 1 "$T/new" 2>/dev/null >"$1" || exit 1
		fi
		round=$((round + 1))
	done
}

# copy_again FILE SIZE COMMAND...: copies to "copied", or says that an edit came meanwhile.
copy_again() {
	file=$1 size=$2
	shift 2
	while [ ! -e "$T/over" ]; do
		rm -f copied
		"$@" "$file" 2>copied.err || grep -q 'Stale file handle' copied.err || fail "$*: $(cat copied.err)"
		[ -s copied.err ] || [ "$(stat -c %s copied)" = "$size" ] || fail "$*: $(stat -c %s copied) bytes, not $size"
		[ "$(stat -c %s "$file")" = "$size" ] || fail "stat: $(stat -c %s "$file") bytes"
	done
}
copy_by_cp() {
	cp "$1" copied
}
copy_by_tar() {
	tar -cf copied.tar -C "${1%/*}" "${1##*/}" && tar -xOf copied.tar >copied
}

# look_at FILE COMMIT READER...
look_at() {
	file=$1 commit=$2
	shift 2
	size=$(stat -c %s "$file")
	rm -f over
	cat "$file" >new
	write_again "$file" "$commit" &
	writer=$!
	started $writer
	running=
	for how; do
		within 300 python3 "$top_srcdir/tests/mount/size-readers.py" "$how" "$file" "$size" >"$how.log" 2>&1 &
		running="$running $how:$!"
		started $!
	done
	for how in cp tar; do
		mkdir -p "$how"
		(cd "$how" && trap - EXIT && copy_again "$file" "$size" "copy_by_$how") >"$how.log" 2>&1 &
		running="$running $how:$!"
		started $!
	done
	status=0
	wait $writer || status=$?
	: >over
	[ $status = 0 ] || fail "$file: the writer: status $status"
	for reader in $running; do
		wait "${reader#*:}" || fail "$file: ${reader%:*}: $? $(cat "${reader%:*}.log")"
	done
	cat ./*.log
	cmp "$file" new || fail "$file: other bytes"
}
ways='sendfile copy copyfile shared private'

start_job 0 2 small
mount_job rw
for commit in true false; do
	look_at "$M/params/embed.weight/fp32" $commit $ways
done
unmount
end_job

gzip -dc "$top_srcdir/tests/data/checkpoints"/*/z2-bf16-w4.tar.gz | tar -xf -
within 60 fragfs z2-bf16-w4 "$M" -o rw || fail "fragfs: $?"
# A page that is read after an edit of its file, through a mapping from before the edit, is ESTALE: SIGBUS.
look_at "$M/params/emb.weight/fp32" true sendfile copy copyfile
look_at "$M/params/emb.weight/fp32" false $ways
unmount
