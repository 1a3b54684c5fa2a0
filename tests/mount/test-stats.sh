#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# params/NAME/stats/STATE/ of a job and of a checkpoint: values are those that awk finds in the state's own file, a NaN is
# found where it was put, and the place that is told for it has it.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"

# values FILE: its float32 elements, a line each.
values() {
	od -A n -v -t f4 -w4 "$1" | tr -d ' '
}

# expect PARAM STATE: what stats/ says; the finite values count, the others are counted.
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
	grep -q '^{"count": [0-9]*, "nan": [0-9]*, .*, "first_inf": [0-9nul]*}$' "$stats/all" || fail "$(cat "$stats/all")"
}

start_job 0 2 small
mount_job rw
param=$M/params/one
for name in $(ls "$M/params"); do
	[ ! -s "$M/params/$name/fp32" ] || expect "$name" fp32
done
! ls "$param" | grep stats || fail "stats is listed"
[ "$(ls "$param/stats")" = "$(ls "$param" | grep -x 'bf16\|exp_avg\|exp_avg_sq\|fp32\|grad')" ] || fail "$(ls "$param/stats")"
[ "$(ls "$param/stats/fp32" | wc -l)" = 13 ] || fail "$(ls "$param/stats/fp32")"

# A NaN and two infinities in the parameter with the most elements.
name=$(for p in "$M"/params/*; do echo "$(cat "$p/numel") ${p##*/}"; done | sort -n | tail -n 1 | cut -d ' ' -f 2)
param=$M/params/$name
numel=$(cat "$param/numel")
at=$((numel - 3))
head -c $((numel * 4)) /dev/zero | within 60 cp /dev/stdin "$param/fp32" || fail "no edit"
[ "$(cat "$param/stats/fp32/nan" "$param/stats/fp32/norm" "$param/stats/fp32/zero")" = "0
0
$numel" ] || fail "zeros: $(cat "$param/stats/fp32/all")"
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
unmount
end_job

tar xzf "$top_srcdir/tests/data/checkpoints/ds0.19.8/z2-fp16-w3.tar.gz" -C "$T"
within 60 "$top_builddir/fragfs" "$(dirname "$(find "$T" -name '*model_states.pt' | head -n 1)")" "$M" || fail "no mount"
for param in "$M"/params/*; do
	[ ! -e "$param/exp_avg" ] || [ "$(cat "$param/numel")" = 0 ] || expect "${param##*/}" exp_avg
done
