#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fragctl's commands over a mount, a job by its name, and a checkpoint: they print what the files of the mount have.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"
export FRAGFS="$top_builddir/fragfs"

line() { grep -q -- "$1" out || fail "no line $1 in: $(cat out)"; }
# fails STATUS TEXT ARGUMENT...: fragctl fails, with one line.
fails() {
	status=$1 text=$2
	shift 2
	got=0
	within 60 fragctl "$@" >out 2>&1 || got=$?
	[ "$got" = "$status" ] && [ "$(wc -l <out)" = 1 ] || fail "fragctl $*: $got, not $status: $(cat out)"
	line "$text"
}
no_private_mounts() { # fragctl mounts in $TMPDIR
	! ls -d "$T"/fragctl.* 2>/dev/null
}

start_job 0 2 small
mount_job rw
cd "$M/params"
name=$(ls | head -n 1)
numel=$(cat "$name/numel")

# Without an argument: the mount that the current folder is in.
within 60 fragctl ls -H -o name >"$T/names"
ls | sort >"$T/want"
sort "$T/names" | cmp - "$T/want" || fail "ls: $(cat "$T/names")"
cd "$T"
within 60 fragctl ls -j "$M" -H -o name,shape,dtype,numel,group "$name" >out
want=$(for file in shape dtype numel group; do printf '\t%s' "$(cat "$M/params/$name/$file")"; done)
[ "$(cat out)" = "$name$want" ] || fail "ls: $(cat out)"
within 60 fragctl ls -j "$M" --json -o states,ranks,fragments "$name" >out
line "\"states\": \"$(ls "$M/params/$name/stats" | paste -s -d ,)\""
line "\"fragments\": $(($(wc -l <"$M/params/$name/fragments") - 1))"
within 60 fragctl ls -j "$M" >out
line '^NAME  *SHAPE  *DTYPE  *NUMEL  *GROUP  *RANKS  *STATES$'
fails 1 "^fragctl: no.such: no parameter has that name" ls -j "$M" "$name" no.such
fails 2 'columns\?, of name, shape,' ls -j "$M" -o name,size
fails 2 'expected: fragctl stat ' stat -j "$M"
fails 1 'nowhere: no mount, no job' ls -j nowhere

within 60 fragctl stat -j "$M" "$name" >out
line "^  numel  *$numel$"
line "^fp32  *float32 "
grep -c '	fp32	' "$M/params/$name/fragments" >want
awk '/^RANK/ { pieces = 1 } pieces && $2 == "fp32"' out | wc -l | cmp - want || fail "stat: $(cat out)"
within 60 fragctl stat -j "$M" --json "$name" >out
line '"writable": "yes"'
line "\"numel\": $numel,"
line '"generation": [0-9]'
line '"offset": [0-9]'
within 60 fragctl map -j "$M" --json "$name" >out
line '"offset": [0-9]'

# A NaN is found where it was put.
head -c $((numel * 4)) /dev/zero | within 60 cp /dev/stdin "$M/params/$name/fp32" || fail "no edit"
printf '\000\000\300\177' | dd of="$M/params/$name/fp32" bs=4 seek=1 conv=notrunc status=none
within 60 fragctl stats -j "$M" "$name/fp32" >out
line "^$name  *fp32  *1  .*NaN at \[.*1\], rank [0-9]*, .* at [0-9]*$"
within 60 fragctl stats -j "$M" -Hp -o nan,norm,first_nan "$name/f*32" >out
[ "$(cut -f 1,3 out)" = "1	1" ] || fail "stats: $(cat out)"
[ "$(cut -f 2 out)" = "$(awk '{ printf "%.17g", $1 }' "$M/params/$name/stats/fp32/norm")" ] || fail "stats: $(cat out)"
# Statistics of all states at once.
within 60 fragctl stats -j "$M" -H -o name,state,nan,note >out || :
[ "$(wc -l <out)" = $(for p in $(cat names); do ls "$M/params/$p/stats"; done | wc -l) ] || fail "stats of all: $(cat out)"
grep -q "^$name	fp32	1	NaN at element 1, rank [0-9]*, .* at [0-9]*$" out || fail "stats of all: $(cat out)"
fails 1 'no parameter or state' stats -j "$M" "$name/fp33"
# top's norm is of finite elements: top says that there are others.
within 60 fragctl top -j "$M" --once >out || fail "top: $?"
line '  [1-9][0-9]* NaN.*, first [^ ]*$'
within 60 fragctl set -j "$M" "$name/fp32" nan || fail "set nan: $?"
within 60 fragctl stats -j "$M" -H -o norm,mean,min "$name/fp32" >one || fail "stats: $?"
within 60 fragctl stats -j "$M" -H -o name,state,norm,mean,min >out || :
grep "^$name	fp32	" out | cut -f 3- | cmp - one || fail "stats where no element is finite: $(cat one out)"
within 60 fragctl top -j "$M" --json | tr -d ' \n' >out || fail "top --json: $?"
line '"nan":[1-9][0-9]*,"inf":'

# get and set: slices against od of the whole file.
two=$(fragctl ls -j "$M" -H -o name,shape | awk -F '\t' 'split($2, n, " ") == 2 && n[1] > 3 && n[2] > 3 { print $1; exit }')
columns=$(cut -d ' ' -f 2 "$M/params/$two/shape")
floats() { # floats FILE: a line for each
	od -A n -v -t f4 -w4 "$1" | tr -d ' '
}
within 60 fragctl set -j "$M" "$two/fp32" zero || fail "set zero: $?"
within 60 fragctl set -j "$M" --json "$two/fp32[1:3,::2]" -1.5 >out || fail "set -1.5: $?"
tr -d ' \n' <out | grep -q "\"state\":\"fp32\",\"slice\":\"\[1:3,::2\]\",\"numel\":$((2 * ((columns + 1) / 2)))," ||
	fail "set --json: $(cat out)"
floats "$M/params/$two/fp32" | awk -v n="$columns" '
	{ row = int((NR - 1) / n); want = row >= 1 && row < 3 && (NR - 1) % n % 2 == 0 ? -1.5 : 0 }
	$1 != want { print NR - 1, $1; exit 1 }' || fail "set of a slice"
within 60 fragctl set -j "$M" "$two/fp32[1]" '*= 4' || fail "set *=: $?"
within 60 fragctl set -j "$M" "$two/fp32[1,0]" -= 0.25 || fail "set -=: $?"
[ "$(within 60 fragctl get -j "$M" -H "$two/fp32[:3,:2]")" = "0	0
-6.25	0
-1.5	0" ] || fail "get: $(cat out)"
within 60 fragctl get -j "$M" "$two[2,:3]" >out
[ "$(tr -s ' ' <out)" = '-1.5 0 -1.5' ] || fail "get: $(cat out)"
within 60 fragctl get -j "$M" --json "$two/fp32[1,0]" | tr -d ' \n' >out
line '"shape":\[\],"values":\[-6.25\]'
within 60 fragctl get -j "$M" "$two/fp32[1,::-1]" -o row || fail "get -o: $?"
within 60 fragctl get -j "$M" "$two/fp32[1,::-1]" -o - | cmp - row || fail "get -o -"
[ ! -e - ] || fail "get -o - has made a file of this name"
# Elements that are far apart come by few reads.
reads() { sed -n 's/^fragfs_reads_total //p' "$M/.frag/metrics"; }
before=$(reads)
within 60 fragctl get -j "$M" 'embed.weight/fp32[::-2,3]' -o column || fail "get of a column: $?"
[ $(($(reads) - before)) -lt 10 ] || fail "get of a column: $(($(reads) - before)) reads"
cmp column "$M/params/embed.weight/fp32[::-2,3]" || fail "get of a column"
[ "$(floats row | tail -n 1)" = -6.25 ] && [ "$(wc -c <row)" = $((columns * 4)) ] || fail "get -o"
within 60 fragctl set -j "$M" "$two/fp32[3,::-1]" =row || fail "set =FILE: $?"
[ "$(within 60 fragctl get -j "$M" "$two/fp32[3,0]")" = -6.25 ] || fail "set =FILE"
echo much >7 # a name that reads as a number is a number
within 60 fragctl set -j "$M" "$two/fp32[3,0]" '= 7' || fail "set = NUMBER: $?"
[ "$(within 60 fragctl get -j "$M" "$two/fp32[3,0]")" = 7 ] || fail "set = NUMBER"
fails 1 'has 5 bytes, and the slice 4' set -j "$M" "$two/fp32[3,0]" '= ./7'
fails 1 'no.such: No such file' set -j "$M" "$two/fp32[3,0]" '= no.such'
within 60 fragctl set -j "$M" "$two/fp32[3,0]" =-0 || fail "set =-0: $?"
within 60 fragctl get -j "$M" --json "$two/fp32[3,0]" | tr -d ' \n' >out
line '"values":\[-0.0\]'
within 60 fragctl set -j "$M" "$two/fp32[3,0]" =-nan || fail "set =-nan: $?"
within 60 fragctl set -j "$M" "$two/fp32[3,0]" -nan || fail "set -nan: $?"
[ "$(within 60 fragctl get -j "$M" "$two/fp32[3,0]")" = nan ] || fail "set -nan"
ln -s /dev/full full
within 60 fragctl get -j "$M" "$two/fp32" -o full 2>why && fail "get -o, to a full disk"
grep -q 'full: No space' why || fail "get -o, to a full disk: $(cat why)"
[ -L full ] || fail "get -o has removed what it did not make"
within 60 fragctl ls -j "$M" >full 2>why && fail "ls to a full disk"
[ "$(cat why)" = 'fragctl: standard output: No space left on device' ] || fail "ls to a full disk: $(cat why)"
within 60 fragctl stats -j "$M" --json >full 2>why && fail "stats --json to a full disk" # of more than stdio's buffer
[ "$(cat why)" = 'fragctl: standard output: No space left on device' ] || fail "stats --json to a full disk: $(cat why)"
within 60 fragctl get -j "$M" "$two/fp32.npy[1,0]" >out 2>why && fail "get: a .npy file's name for a state's"
grep -q 'has no state fp32.npy' why || fail "get, no state: $(cat why)"
within 60 fragctl get -j "$M" "$two/fp32" -o whole.npy || fail "get -o npy: $?"
within 60 fragctl set -j "$M" "$two/fp32" zero
within 60 fragctl set -j "$M" "$two/fp32" =whole.npy || fail "set =NPY: $?"
cmp "$M/params/$two/fp32.npy" whole.npy || fail "set =NPY"
for change in 's/<f4/<i4/' 's/<f4/>f4/' 's/(\([0-9]*\), \([0-9]*\))/(\2, \1)/' 's/False/True /'; do
	LC_ALL=C sed "1$change" whole.npy >other.npy
	cmp -s whole.npy other.npy || fails 1 'other.npy: \(has .* of shape\|not in C order\)' set -j "$M" "$two/fp32" =other.npy
done
cmp "$M/params/$two/fp32.npy" whole.npy || fail "set of another NPY"
LC_ALL=C sed '1s/, }  /}    /' whole.npy >other.npy
within 60 fragctl set -j "$M" "$two/fp32" =other.npy || fail "set =NPY with another header of the same"
# The owners compute an edit: the job's log names the operation, and the mount stages no bytes.
metric() {
	awk -v name="$1" '$1 == name { print $2 }' "$M/.frag/metrics"
}
staged=$(metric fragfs_commit_bytes_total) heard=$(metric fragfs_messages_in_total)
within 60 fragctl set -j "$M" "$two/exp_avg" '+= 0.5' || fail "set of moments: $?"
[ "$(metric fragfs_commit_bytes_total)" = "$staged" ] || fail "set of moments has staged bytes"
grep -q '"state":"exp_avg","operation":"+= 0.5",.*"outcome":"committed"' "$M/.frag/log" || fail "$(cat "$M/.frag/log")"

fails 1 'out of the range' get -j "$M" "$two/fp32[99999]"
for slice in '[x]' '[' '[0:3' '[0:3,:'; do
	fails 2 'a slice, such as' get -j "$M" "$two/fp32$slice"
	fails 2 'a slice, such as' get -j "$M" "$two$slice"
done
for nothing in = '= '; do
	fails 2 'a number or a FILE is expected after =' set -j "$M" "$two/fp32[0,0]" "$nothing"
done
fails 1 "row: has $((columns * 4)) bytes, and the slice 4" set -j "$M" "$two/fp32[0,0]" =row
fails 2 "which state? name it, as in $two/fp32" set -j "$M" "$two" 1
fails 2 "which state? name it, as in $two/fp32" set -j "$M" "$two[0]" '*= 2'
fails 2 'a number, zero' set -j "$M" "$two/fp32" much
within 60 fragctl set -j "$M" "$two/fp32[0,0]" -- -inf || fail "set -- -inf: $?"
[ "$(within 60 fragctl get -j "$M" -- "$two/fp32[0,0]")" = -inf ] || fail "set -- -inf"
mkfifo fifo
fails 1 'fifo: is no regular file' set -j "$M" "$two/fp32" =fifo
fails 1 '/dev/zero: is no regular file' set -j "$M" "$two/fp32" =/dev/zero
fails 1 'no such number' set -j "$M" "$two/fp32" 1e99
fails 1 'Permission denied\|Read-only' set -j "$M" "$two/bf16" 1
# An edit that cannot be staged as a whole is not committed in part.
big=$(fragctl ls -j "$M" -H -o numel,name | sort -n | tail -n 1 | cut -f 2)
if [ "$(cat "$M/params/$big/numel")" -gt 40000 ]; then
	mkdir little
	within 60 "$FRAGFS" "$address" little -o rw,stage_mem=64K
	floats "$M/params/$big/fp32" >want
	head -c $(stat -Lc %s "$M/params/$big/fp32") /dev/zero >zeros
	fails 1 'No space left' set -j little "$big/fp32" =zeros
	floats "$M/params/$big/fp32" | cmp - want || fail "a part was set"
	fusermount3 -u little
fi

# The map shows all pieces of each parameter.
cd "$T"
within 60 fragctl map -j "$M" -H -o name,numel | awk '{ n[$1] += $2 } END { for (p in n) print p, n[p] }' | sort >out
for p in $(cat names); do echo "$p $(cat "$M/params/$p/numel")"; done | grep -v ' 0$' | sort >want
diff want out || fail "map"
COLUMNS=60 within 60 fragctl map -j "$M" >out
line "^$name  *[01]*$"
within 60 fragctl map -j "$M" -s map.svg || fail "map -s: $?"
grep -q "<text [^>]*>$name</text>" map.svg && [ "$(tail -n 1 map.svg)" = '</svg>' ] || fail "$(cat map.svg)"

# diff finds the changed element, and nothing between equal states.
within 60 fragctl diff "$M" "$M" -H -o changed,relative "$name" >out || fail "diff of one mount: $?"
[ "$(cat out)" = "0	0" ] || fail "diff: $(cat out)"
unmount

# top, without a terminal and in one.
mount_job rw
within 60 fragctl top -j "$M" --once >out || fail "top: $?"
line '^job [^ ]*  step [0-9]*  .*  2 of 2 ranks$'
line '^ *1  .* alive  .* s$'
line '^[^ ]*  *[0-9]*  fragfs  *rw  .* s$'
[ "$(grep -c '^ *[0-9]*  *[0-9.e+]*  |#*█* *|' out)" = "$(ls "$M/groups" | wc -l)" ] || fail "top: $(cat out)"
within 60 fragctl top -j "$M" --json >out || fail "top --json: $?"
line '"norm": '
line '"program": "fragfs"'

# Who reads: the mount, and the view that a file which is read from keeps open.
readers_of() { # PROGRAM MODE COLUMN: a line for each rank, in which mounts that have ended are for some seconds
	within 60 cat "$M/.frag/readers" >readers || fail "readers: $?"
	awk -F '\t' -v program="$1" -v mode="$2" -v column="$3" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
		$at["program"] == program && $at["mode"] == mode && $at["silent"] < 4 { print $at[column] }' readers
}
is_alone() {
	[ "$(readers_of fragfs rw rank | tr '\n' ' ')" = '0 1 ' ]
}
wait_until 60 is_alone || fail "readers: $(cat readers)"
pid=$(readers_of fragfs rw pid | uniq)
[ "$(cat "/proc/$pid/comm")" = fragfs ] || fail "readers: $(cat readers)"
[ "$(readers_of fragfs rw uid | uniq)" = "$(id -u)" ] || fail "readers: $(cat readers)"
exec 5<"$M/params/$name/fp32"
within 60 dd bs=8 count=1 status=none <&5 >read || fail "read: $?"
has_view() {
	readers_of fragfs rw views | grep -qx 1 && readers_of fragfs rw bytes | grep -qx '[1-9][0-9]*'
}
wait_until 60 has_view || fail "readers: $(cat readers)"
exec 5<&-
odd=$(printf 'frag\377')
ln -s "$FRAGFS" "$odd"
mkdir odd
within 60 "./$odd" "$address" odd
is_odd_there() {
	within 60 grep -q "	$odd	" "$M/.frag/readers"
}
wait_until 60 is_odd_there || fail "readers: $(cat "$M/.frag/readers")"
within 60 fragctl top -j "$M" --json >out || fail "top --json: $?"
line '"program": "frag%FF"'
fails 1 'top needs a terminal' top -j "$M" </dev/null
events=$(sed -n '/^\.Ss Events/,/^\.Ss/s/^\.It Li //p' "$top_srcdir/docs/fragfs.1" | tr '\n' ' ')
fails 2 "edits: no event; there are: ${events% }\$" watch -j "$M" step edits
fails 2 'not both' thaw -j "$M" "$M"
# While a command runs in a freeze, edits are applied where the job stands.
within 60 fragctl freeze -t 50 "$M" -- fragctl set -j "$M" "$name/fp32" '*= 2' || fail "set *= in a freeze: $?"
within 60 fragctl freeze -t 50 "$M" -- fragctl set -j "$M" "$name/fp32" 1 || fail "set in a freeze: $?"
if command -v script >/dev/null; then
	mkfifo keys
	TERM=xterm timeout -k 5 60 script -qefc "fragctl top -j $M" typescript <keys >/dev/null &
	screen=$!
	exec 7>keys
	wait_until 60 grep -qs "steps/s" typescript || fail "top shows nothing: $(cat -v typescript)"
	wait_until 60 grep -qs 'frag%FF' typescript || fail "top shows no frag%FF: $(cat -v typescript)"
	printf q >&7
	wait_until 60 is_over $screen || fail "top does not end"
	exec 7>&-
fi
fusermount3 -u odd
unmount

# watch prints events as they come.
mount_job rw
within 60 fragctl watch -j "$M" -n 1 edit >watched &
watcher=$!
started $watcher
edits() { # until the watcher has opened the file
	printf '\000\000\000\100' | dd of="$M/params/$name/fp32" bs=4 conv=notrunc status=none
	is_over $watcher
}
wait_until 60 edits || fail "no event"
grep -q "^[0-9:.]*  edit  .* outcome committed" watched || fail "watch: $(cat watched)"
unmount

# A job that is not mounted, by its address and by its name.
within 60 fragctl ls -j "$address" -H -o name >out
cmp out names || fail "ls -j $address: $(cat out)"
no_private_mounts || fail "a mount is left"

# When fragctl is ended, its private mount ends.
private_mount() {
	ls -d "$T"/fragctl.*/params >/dev/null 2>&1
}
for signal in INT TERM KILL; do
	fragctl watch -j "$address" >/dev/null 2>&1 &
	started $!
	wait_until 60 private_mount || fail "fragctl watch -j mounts nothing"
	kill -$signal $!
	wait_until 60 no_private_mounts || fail "a mount is left by SIG$signal"
done
end_job

tar xzf "$top_srcdir/tests/data/checkpoints/ds0.19.8/z2-fp16-w3.tar.gz" -C "$T"
checkpoint=$(dirname "$(find "$T" -name '*model_states.pt' | head -n 1)")
within 60 fragctl ls -j "$checkpoint" -H -o name >out
[ -s out ] || fail "no parameters in $checkpoint"
within 60 fragctl stats -j "$checkpoint" '*/exp_avg' >out || fail "stats of a checkpoint: $?"
no_private_mounts || fail "a mount is left"

# All states of a parameter are listed, however long the list is.
tar xzf "$top_srcdir/tests/data/checkpoints/ds0.19.8/z2-bf16-w3-universal.tar.gz" -C "$T"
folder=$(dirname "$(find "$T" -name exp_avg.pt | sort | head -n 1)")
for i in $(seq 200); do cp "$folder/exp_avg.pt" "$folder/another_state_$i.pt"; done
within 60 fragctl ls -j "${folder%/zero/*}" -H -o states "${folder##*/}" >out || fail "ls: $?"
[ "$(tr , '\n' <out | grep -cx 'another_state_[0-9]*')" = 200 ] || fail "states: $(cat out)"

within 60 fragctl diff "$checkpoint" "$checkpoint" -H -o name >out || fail "diff of a checkpoint: $?"
within 60 fragctl ls -j "$checkpoint" -H -o name | diff - out || fail "diff: not as the mount has them"
tar xzf "$top_srcdir/tests/data/checkpoints/ds0.19.8/z2-fp16-w3.tar.gz" --one-top-level=other
other=$(dirname "$(find other -name '*model_states.pt' | head -n 1)")
within 60 fragfs "$other" "$M" -o rw || fail "no mount"
p=$(ls "$M/params" | head -n 1)
printf '\000\000\172\104' | dd of="$M/params/$p/fp32" bs=4 seek=1 conv=notrunc status=none # 1000.0
unmount
got=0
within 60 fragctl diff "$checkpoint" "$other" -n 1 -H -o name,state,changed,at >out || got=$?
[ $got = 3 ] && [ "$(cat out)" = "$p	fp32	1	1" ] || fail "diff: $got: $(cat out)"
no_private_mounts || fail "two mounts are left"
fails 1 "^fragctl: $checkpoint: a checkpoint has no events" watch -j "$checkpoint"
for words in '' 'nan(fp32)>0' '-w nan(fp32)>0'; do
	# shellcheck disable=SC2086
	fails 1 "^fragctl: $checkpoint: a checkpoint is mounted there" break -j "$checkpoint" $words
done
# A folder with such files is a mount to fragctl: /events of a watch that has replaced two others.
mkdir -p told/.frag
echo >told/.frag/control
cat >told/events <<-'EOF'
	{"event":"break-over","time":1,"condition":"nan(fp32) > 0","why":"ended"}
	{"event":"break-over","time":1,"condition":"nan(grad) > 0","why":"ended"}
	{"event":"break","time":1,"condition":"nan(grad) > 0","param":"a\u001b[31mb"}
EOF
within 60 fragctl break -j "$T/told" -w -t 60 'nan(grad)>0' >out || fail "break -w: $?"
line '  break  .* condition nan(grad) > 0 param a%1B\[31mb$'
within 60 fragctl watch -j "$T/told" break >out || fail "watch: $?"
line '  break  .* param a%1B\[31mb$'
fails 2 "^fragctl: 0\{100\}\.\.\.: a state's name has 63 bytes at most" break -j "$T/told" "$(printf %0600d 0)"
if command -v script >/dev/null; then
	mkfifo told/.frag/stats
	{
		printf 'name\tstate\tnan\n'
		for _ in 1 2 3; do
			printf 'w\tfp32\t0\n'
			sleep 1
		done
	} >told/.frag/stats &
	started $!
	TERM=xterm within 60 script -qefc "fragctl stats -j $T/told -H -o name" typescript </dev/null >/dev/null || fail "stats: $?"
	grep -q 'states: [23], ' typescript || fail "no progress: $(cat -v typescript)"
	rm told/.frag/stats
	printf '#!/bin/sh\nsleep 4\nexec "%s/fragfs" "$@"\n' "$top_builddir" >slow-fragfs
	chmod +x slow-fragfs
	TERM=xterm FRAGFS=$T/slow-fragfs within 60 script -qefc "fragctl ls -j $checkpoint" typescript </dev/null >/dev/null || fail "ls: $?"
	grep -q 'mounting: [0-9]* s' typescript || fail "no progress: $(cat -v typescript)"
fi
for command in freeze thaw arena 'top --once'; do
	# shellcheck disable=SC2086
	fails 1 "^fragctl: $checkpoint: a checkpoint is mounted there" $command -j "$checkpoint"
done
within 60 fragctl status -j "$checkpoint" >out || fail "status of a checkpoint: $?"
line "^  format "
printf '\070\0\0\0\0\0\0\0{"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}  ' >empty.safetensors
fails 1 '^fragctl: empty.safetensors: .*no parameter has bytes' bench -j empty.safetensors

# A name that begins with a dot is listed like others.
printf '\070\0\0\0\0\0\0\0{".w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} \0\0\200\077' >dot.safetensors
[ "$(within 60 fragctl ls -j dot.safetensors -H -o name)" = .w ] || fail "ls of a name with a dot"
[ "$(within 60 fragctl get -j dot.safetensors .w)" = 1 ] || fail "get of a name with a dot"
cp "$top_srcdir/tests/data/checkpoint/mixed.pt" .
fails 1 '^fragctl: 1.5: int32 has no such number' set -j mixed.pt dtypes.int32/int32 1.5
fails 1 '^fragctl: nan: bool has no such number' set -j mixed.pt dtypes.bool/bool nan
fails 1 '^fragctl: 1: an element of complex64 is set by zero or = FILE' set -j mixed.pt dtypes.complex64/complex64 1
fails 1 'an empty word names no mount' ls -j ''
fails 1 'an empty word names no mount' plan ''
(
	FRAGFS=/bin/false
	fails 1 '^fragctl: ./mixed.pt: /bin/false has ended without a word' ls -j mixed.pt
)

# A change whose squares are beyond float64 is the greatest.
for sign in 177 377; do
	printf '\160\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},"b":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}    '
	printf "\\240\\310\\353\\205\\363\\314\\341\\$sign\\0\\0\\$sign\\077"
done >both
head -c 132 both >one.safetensors
tail -c 132 both >other.safetensors
got=0
within 60 fragctl diff one.safetensors other.safetensors -H -o name,relative >out || got=$?
[ $got = 3 ] && [ "$(head -n 1 out)" = 'b	inf' ] || fail "diff: $got $(cat out)"

# Complex numbers differ by the modulus of the difference: 3+4i, 1 against 0, 1.
complex() { # complex BYTES: a file with w of two complex64, the first of them BYTES
	printf '\100\0\0\0\0\0\0\0%-64s' '{"w":{"dtype":"C64","shape":[2],"data_offsets":[0,16]}}'
	printf "$1"'\0\0\200\077\0\0\0\0'
}
complex '\0\0\100\100\0\0\200\100' >a.safetensors
complex '\0\0\0\0\0\0\0\0' >b.safetensors
complex '\0\0\0\0\0\0\300\177' >c.safetensors
for pair in 'a a 0	0.0	0.0	0.0' 'b a 1	5.0	5.0	5.0' 'b c 1	inf	0.0	0.0'; do
	# shellcheck disable=SC2086
	set -- $pair
	got=0 want=3
	[ "$1" != "$2" ] || want=0
	within 60 fragctl diff "$1.safetensors" "$2.safetensors" -Hp -o changed,relative,norm_diff,max_diff >out 2>&1 || got=$?
	[ "$got" = "$want" ] && awk -v c="$3" -v r="$4" -v n="$5" -v m="$6" \
		'{ exit !(NF == 4 && $1 == c && $2 "" == (r == "inf" ? r : r + 0 "") && $3 == n && $4 == m) }' out ||
		fail "diff of complex numbers, $pair: $got $(cat out)"
done

# JSON has the names unchanged, but for bytes that are not UTF-8; a terminal gets no control characters.
printf '\100\0\0\0\0\0\0\0{"\\n\\u001b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   \0\0\200\077' >control.safetensors
[ "$(within 60 fragctl ls -j control.safetensors -H -o name)" = %0A%1B ] || fail "ls of a name with control characters"
within 60 fragctl ls --json -j control.safetensors -o name >out || fail "ls --json of a name with control characters"
line '"name": "\\n\\u001B"'
within 60 fragctl stats --json -j control.safetensors -o name >out || fail "stats --json of a name with control characters"
line '"name": "\\n\\u001B"'
[ "$(within 60 fragctl stats -j control.safetensors -H -o name)" = %0A%1B ] || fail "stats of a name with control characters"
# The drawing is XML in UTF-8, whatever the names; a name in UTF-8 takes its columns.
cp control.safetensors '&<.safetensors'
within 60 fragctl map -j '&<.safetensors' -s map.svg || fail "map -s of odd names: $?"
grep -q '<title>rank 0, file, partition &#38;&#60;.safetensors at 72, 1 elements</title>' map.svg || fail "$(cat map.svg)"
within 60 fragctl map -j "$top_srcdir/tests/data/checkpoint/names.pt" -s map.svg || fail "map -s of names.pt: $?"
iconv -f UTF-8 -t UTF-16 map.svg >map.utf16 && grep -q '>nul%C0%80<' map.svg || fail "map -s of names.pt: $(cat map.svg)"
printf '\100\0\0\0\0\0\0\0{"\303\251":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}         \0\0\200\077' >e.safetensors
[ "$(within 60 fragctl map -j e.safetensors -a | head -n 1 | cut -d 0 -f 1 | wc -m)" = 34 ] || fail "map: $(fragctl map -j e.safetensors)"
printf '\160\0\0\0\0\0\0\0{"\303\251":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"abcd":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}} ' >wide.safetensors
within 60 fragctl ls -j wide.safetensors -o name,dtype >out || fail "ls of a name in UTF-8"
line "^$(printf '\303\251')     float32\$"
line '^abcd  float32$'
within 60 fragctl stat --json -j "$top_srcdir/tests/data/checkpoint/names.pt" 'nul*' >out || fail "stat: $?"
line '"name": "nul%C0%80",'
mkdir "$(printf 'm\351')"
within 60 fragfs "$top_srcdir/tests/data/checkpoint/names.pt" "$T/$(printf 'm\351')" || fail "fragfs: $?"
odd=$(cd "$T/$(printf 'm\351')/params" && echo nul*)
within 60 fragctl get --json -j "$T/$(printf 'm\351')" "$odd" >out || fail "get: $?"
line '"name": "nul%C0%80",'
within 60 fragctl status --json "$T/$(printf 'm\351')" >out || fail "status: $?"
line '"mountpoint": ".*/m%E9",'
fusermount3 -u "$T/$(printf 'm\351')"
within 60 fragctl bench -j "$checkpoint" -H -o what,bytes_per_s >out || fail "bench: $?"
if command -v script >/dev/null; then
	TERM=xterm within 60 script -qefc "fragctl bench -j $checkpoint -o what" typescript </dev/null >/dev/null || fail "bench: $?"
	grep -q 'passes: [1-4] of 5 ' typescript || fail "no progress: $(cat -v typescript)"
fi
[ "$(awk -F '\t' '$2 != "0B"' out | wc -l)" = 5 ] || fail "bench: $(cat out)"

got=0
FRAG_SWAP_DIR=$T/nowhere within 60 fragctl doctor >out || got=$?
[ $got = 3 ] || fail "doctor: $got"
line '^/dev/fuse  *good  '
line '^swap directory  *bad  .*mkdir -p'
umask 022
echo key >open.key
chmod 644 open.key
FRAG_KEY_FILE=$T/open.key fragctl doctor --json >out || :
line "\"chmod 600 $T/open.key\""
mkdir empty
fails 1 'empty is no checkpoint' ls -j "$T/empty"
no_private_mounts || fail "a folder is left"

# A signal may come while fragctl still mounts.
for signal in INT TERM KILL; do
	for delay in 0 0.005 0.01 0.02 0.05 0.1; do
		fragctl watch -j "$checkpoint" >/dev/null 2>&1 &
		sleep $delay
		kill -$signal $! 2>/dev/null || :
		wait $! || :
	done
	wait_until 60 no_private_mounts || fail "a mount or folder is left by SIG$signal"
done
