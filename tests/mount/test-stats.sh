#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# params/NAME/stats/STATE/ of a job and of a checkpoint: the values are those that awk finds in the state's own file; a
# NaN is found where it was put, and is at the place that the mount tells.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"

xxhsum=$(command -v xxhsum) || :

# values FILE: prints its float32 elements, a line each.
values() {
	od -A n -v -t f4 -w4 "$1" | tr -d ' '
}

# expect PARAM STATE: checks stats/ over the finite values, and the counts of others.
expect() {
	within 60 cat "$M/params/$1/$2" >state || fail "$1/$2: $?"
	stats=$M/params/$1/stats/$2
	values state | awk '
		BEGIN { first_nan = first_inf = "none" }
		/nan/ { if (!nan++) first_nan = NR - 1; next }
		/inf/ { if (!inf++) first_inf = NR - 1; next }
		{ n++; sum += $1; squares += $1 * $1; zero += $1 == 0
		  if (n == 1 || $1 + 0 < min) min = $1 + 0
		  if (n == 1 || $1 + 0 > max) max = $1 + 0 }
		END { print nan + 0, inf + 0, zero + 0, first_nan, first_inf, NR
		      absmax = -min > max ? -min : max
		      printf "%.17g %.17g %.17g %.17g %.17g\n", sqrt(squares), sum / n, min, max, absmax }' >want
	for name in nan inf zero first_nan first_inf; do
		within 60 cat "$stats/$name" || fail "$1/stats/$2/$name: $?"
	done | awk -F '\t' '{ printf "%s ", (NF > 1 ? $2 : $1) }' >got
	echo "$(cat got)$(awk '{ n += $2 } END { print n }' "$stats/hist")" | awk '{ $6 += $1 + $2; print }' >got.counts
	[ "$(cat got.counts)" = "$(head -n 1 want)" ] || fail "$1/stats/$2: $(cat got.counts) is not $(head -n 1 want)"
	for name in norm mean min max absmax; do
		within 60 cat "$stats/$name" || fail "$1/stats/$2/$name: $?"
	done | tr '\n' ' ' >got
	tail -n 1 want | paste -d ' ' got - | awk '
		function far(a, b) { return (a > b ? a - b : b - a) > 1e-5 * (b < 0 ? -b : b) + 1e-5 }
		{ for (i = 1; i <= NF / 2; i++) if (far($i, $(i + NF / 2))) exit 1 }' ||
		fail "$1/stats/$2: $(cat got) is not $(tail -n 1 want)"
	[ -z "$xxhsum" ] || [ "$(cat "$stats/xxh64")" = "$(xxhsum -H64 <state | cut -d ' ' -f 1)" ] || fail "$1/$2: $(cat "$stats/xxh64")"
	grep -q '^{"count": [0-9]*, "nan": [0-9]*, .*, "first_inf": [0-9nul]*}$' "$stats/all" || fail "$(cat "$stats/all")"
}

# A file that was opened before an edit has its own view: statistics of the old bytes are not kept for the new ones.
mount_fake rw
stats=$M/params/faulty/stats/viewed
exec 5<"$stats/zero"
head -c 16384 /dev/zero | within 60 cp /dev/stdin "$M/params/faulty/viewed" || fail "no edit"
[ "$(cat <&5)" != 4096 ] || fail "the view has the new bytes"
exec 5<&-
[ "$(cat "$stats/zero")" = 4096 ] || fail "zeros of before: $(cat "$stats/all")"
unmount

start_job 0 2 small
mount_job rw
param=$M/params/one
for name in $(ls "$M/params"); do
	[ ! -s "$M/params/$name/fp32" ] || expect "$name" fp32
done
! ls "$param" | grep stats || fail "stats is listed"
[ "$(ls "$param/stats")" = "$(ls "$param" | grep -x 'bf16\|exp_avg\|exp_avg_sq\|fp32\|grad')" ] || fail "$(ls "$param/stats")"
[ "$(ls "$param/stats/fp32" | wc -l)" = 14 ] || fail "$(ls "$param/stats/fp32")"

# A NaN and two infinities in the parameter with the most elements.
name=$(for p in "$M"/params/*; do echo "$(cat "$p/numel") ${p##*/}"; done | sort -n | tail -n 1 | cut -d ' ' -f 2)
param=$M/params/$name
numel=$(cat "$param/numel")
at=$((numel - 3))
head -c $((numel * 4)) /dev/zero | within 60 cp /dev/stdin "$param/fp32" || fail "no edit"
[ "$(cat "$param/stats/fp32/nan" "$param/stats/fp32/norm" "$param/stats/fp32/zero")" = "0
0
$numel" ] || fail "zeros: $(cat "$param/stats/fp32/all")"
[ "$numel $(cat "$param/stats/fp32/xxh64")" = '13504 0d19ab473f436d04' ] || fail "XXH64 of $numel zeros: $(cat "$param/stats/fp32/xxh64")"
printf '\000\000\200\177\000\000\300\177\000\000\200\377' |
	within 60 dd of="$param/fp32" bs=4 seek=$at conv=notrunc status=none || fail "no edit"
[ "$(cat "$param/stats/fp32/nan") $(cat "$param/stats/fp32/inf")" = '1 2' ] || fail "$(cat "$param/stats/fp32/all")"
[ "$(cut -f 2 "$param/stats/fp32/first_inf")" = $at ] || fail "$(cat "$param/stats/fp32/first_inf")"
IFS='	' read -r indices element rank partition offset <"$param/stats/fp32/first_nan"
[ "$element" = $((at + 1)) ] || fail "NaN at $element"
[ "$(od -A n -t x4 -j $((offset * 4)) -N 4 "$M/ranks/${rank#rank }/partitions/$partition/fp32")" = ' 7fc00000' ] ||
	fail "no NaN at $rank, $partition, $offset"
strides=$(cat "$param/shape")
flat=0
for index in $(echo "$indices" | tr ',' ' '); do
	size=${strides%% *}
	strides=${strides#* }
	flat=$((flat * size + index))
done
[ $flat = "$element" ] || fail "indices $indices are not of $element"
[ "$(cat "$M/now/$name/stats/fp32/nan")" = 1 ] || fail "now/ has no NaN"
refused 'Permission denied' sh -c "echo 1 >'$param/stats/fp32/nan'"
[ "$(dd if="$param/stats/fp32/all" bs=1 skip=1 count=7 status=none)" = '"count"' ] || fail "a part of all"

# table_agrees [WITHOUT]: .frag/stats has a line for each state, with the values of the state's own files.
table_agrees() {
	within 120 cat "$M/.frag/stats" >table || fail ".frag/stats: $?"
	[ "$(awk -F '\t' 'NF != 18' table)" = '' ] || fail "columns: $(awk -F '\t' 'NF != 18' table | head -n 1)"
	for param in "$M"/params/*; do
		ls "$param/stats" | sed "s|^|${param##*/}	|"
	done | sort >want
	tail -n +2 table | cut -f 1,2 | grep -v "^buffers/" | sort | diff want - >&2 || fail ".frag/stats has other states"
	tail -n +2 table | grep -v '	grad	\|^buffers/' | tail -n 12 | while IFS='	' read -r name state nan inf zero count norm rest; do
		stats=$M/params/$name/stats/$state
		[ "$nan $inf $zero" = "$(cat "$stats/nan" "$stats/inf" "$stats/zero" | tr '\n' ' ' | sed 's/ $//')" ] ||
			fail "$name/$state: $nan $inf $zero"
		echo "$norm $(cat "$stats/norm")" | awk '{ d = $1 - $2; if (d * d > 1e-18 * $2 * $2 + 1e-30) exit 1 }' ||
			fail "$name/$state: norm $norm"
	done || exit 1
}

table_agrees
[ "$(awk -F '\t' -v name="$name" '$3 > 0 && $1 == name && $2 == "fp32" { print $13, $15, $16, $17 }' table)" = \
	"$((at + 1)) ${rank#rank } $partition $offset" ] || fail "the NaN: $(grep "^$name	" table)"
within 60 cat "$M/.frag/stats" | cmp - table || fail "another table of the same generation"
! ls "$M/.frag" | grep stats || fail ".frag/stats is listed"
head -c 20 "$M/.frag/stats" >/dev/null || fail "a part of the table"
unmount
end_job

tar xzf "$top_srcdir/tests/data/checkpoints/ds0.19.8/z2-fp16-w3.tar.gz" -C "$T"
checkpoint=$(dirname "$(find "$T" -name '*model_states.pt' | head -n 1)")
within 60 "$top_builddir/fragfs" "$checkpoint" "$M" || fail "no mount"
for param in "$M"/params/*; do
	[ ! -e "$param/exp_avg" ] || [ "$(cat "$param/numel")" = 0 ] || expect "${param##*/}" exp_avg
done
table_agrees
[ "$(cut -f 18 table | sort -u)" = '-
error' ] || fail "errors: $(cut -f 18 table | sort -u)"
unmount

# An edit in an overlay changes no file of the checkpoint, but changes the table, and the time of an export.  The
# archive's files have time 0, for which no table is kept.
find "$checkpoint" -type f -exec touch {} +
within 60 "$top_builddir/fragfs" "$checkpoint" "$M" -o "overlay=$T/overlay" || fail "no mount"
table_agrees
name=$(awk -F '\t' '$1 !~ /^buffers/ && $2 == "fp32" && $6 > 0 { name = $1 } END { print name }' table)
numel=$(cat "$M/params/$name/numel")
export=$(ls "$M/export"/*.safetensors | head -n 1)
touch "$T/mounted"
[ ! "$export" -nt "$T/mounted" ] || fail "$export is of the future"
sleep 0.1
head -c $((numel * 4)) /dev/zero | within 60 cp /dev/stdin "$M/params/$name/fp32" || fail "no edit"
within 60 cat "$M/.frag/stats" >table || fail ".frag/stats: $?"
[ "$(awk -F '\t' -v name="$name" '$1 == name && $2 == "fp32" { print $5 }' table)" = "$numel" ] ||
	fail "zeros of before the edit: $(grep "^$name	fp32" table)"
tries=0
until [ "$export" -nt "$T/mounted" ]; do # the kernel keeps the time for a second
	tries=$((tries + 1))
	[ $tries -lt 600 ] || fail "$export is as old as before the edit"
	sleep 0.1
done
unmount

# Complex numbers have no statistics, and say so.
within 60 "$top_builddir/fragfs" "$top_srcdir/tests/data/checkpoint/mixed.pt" "$M" || fail "no mount"
table_agrees
for name in dtypes.complex32 dtypes.complex64 dtypes.complex128; do
	grep -q "^$name	${name#dtypes.}	-	.*	complex numbers have no statistics$" table || fail "$name: $(grep "^$name" table)"
	within 60 fragctl stats -j "$M" -H -o nan,note "$name" >out && fail "fragctl stats $name: $(cat out)"
	[ "$(cat out)" = "-	complex numbers have no statistics" ] || fail "fragctl stats $name: $(cat out)"
done
unmount

# The byte in the file of an element that is stored narrower than it is shown; a name with a tab stays one column.
mkdir "$T/half"
header='{"w":{"dtype":"F16","shape":[2,4],"data_offsets":[0,16]},"a\tb":{"dtype":"F16","shape":[1],"data_offsets":[16,18]}}'
{
	printf "\\$(printf %o ${#header})\0\0\0\0\0\0\0"
	printf '%s' "$header"
	printf '\0\0\0\0\0\0\0\0\0\0\0\176\0\0\0\0\0\176'
} >"$T/half/model.safetensors"
within 60 "$top_builddir/fragfs" "$T/half" "$M" || fail "no mount"
for state in fp16 fp32; do
	where=$(cat "$M/params/w/stats/$state/first_nan")
	[ "$where" = "1,1	5	rank 0	model.safetensors	$((8 + ${#header} + 10))" ] || fail "$state: NaN at $where"
done
within 60 cat "$M/.frag/stats" >table || fail ".frag/stats: $?"
[ "$(awk -F '\t' '$3 == 1 { print $1, $2 }' table | sort | tr '\n' ' ')" = 'a%09b fp16 a%09b fp32 w fp16 w fp32 ' ] ||
	fail "names in the table: $(cat table)"
