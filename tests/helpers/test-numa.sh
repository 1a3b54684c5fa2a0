#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fragctl numa divides the cores of machines that hwloc makes up; FRAG_BIND binds the library's threads, and no others.
. "$top_srcdir/tests/lib.sh"
export LC_ALL=C
unset KMP_AFFINITY LOCAL_WORLD_SIZE

# ---- FRAG_BIND

allowed() { # PID THREAD
	sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$1/task/$2/status" 2>/dev/null
}

# bound VALUE OPTION...: a trainer of one rank; fails unless it runs.
bound() {
	bind=$1
	shift
	rm -f train.log
	FRAG_BIND=$bind RANK=0 WORLD_SIZE=1 FRAG_JOB_ID=numa-$$ "$top_builddir/docs/examples/train" --forever --every 1 \
		--pause-ms 20 "$@" >train.log 2>&1 &
	pid=$!
	started $pid
	wait_until 60 grep -qs '^step' train.log || fail "it does not train"
}

end_train() {
	kill "$pid"
	wait "$pid" 2>/dev/null || :
}

mine=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
last=${mine##*[,-]}
mkdir swap
FRAG_PINNED_MEM=64K bound "$last" --swap "$T/swap"
others=0
for thread in $(ls "/proc/$pid/task"); do
	if [ "$thread" = "$pid" ]; then
		[ "$(allowed "$pid" "$thread")" = "$mine" ] || fail "the trainer's thread is bound: $(allowed "$pid" "$thread")"
		continue
	fi
	on=$(allowed "$pid" "$thread")
	[ -z "$on" ] || [ "$on" = "$last" ] || fail "thread $(cat "/proc/$pid/task/$thread/comm") is on $on, not $last"
	others=$((others + 1))
done
[ $others -ge 4 ] || fail "$others threads of the library: $(cat "/proc/$pid/task"/*/comm)"
end_train

# Where the node of the disk is not known, a line says so.
bound disk
grep -q 'FRAG_BIND=disk: no states are on NVMe: threads are not bound' train.log || fail "disk: no line"
end_train
got=0
FRAG_BIND=4000 RANK=0 WORLD_SIZE=2 "$top_builddir/docs/examples/train" --steps 1 >out 2>&1 || got=$?
[ $got = 1 ] && grep -q 'FRAG_BIND=4000: this process may use none of these processors' out || fail "4000: $got: $(cat out)"

# ---- fragctl numa

fragctl numa >out 2>&1 || skip "fragctl numa: $(cat out)"

# numa MACHINE WORD...: of a machine of hwloc's making.
numa() {
	machine=$1
	shift
	HWLOC_SYNTHETIC=$machine fragctl numa "$@"
}
is() { # WANT MACHINE WORD...
	want=$1
	shift
	got=$(numa "$@") || fail "fragctl numa $*: $?"
	[ "$got" = "$want" ] || fail "fragctl numa $*: $got"
}
fails() { # STATUS TEXT MACHINE WORD...
	status=$1 text=$2 got=0
	shift 2
	numa "$@" >out 2>&1 || got=$?
	[ $got = "$status" ] && grep -q -e "$text" out || fail "fragctl numa $*: exit $got: $(cat out)"
}

two='node:2 core:4 pu:2'
is 'numactl -m 0 -C 0,2,4,6' "$two" -n 2 -R 0
is 'numactl -m 1 -C 8,10,12,14' "$two" --procs 2 --local-rank 1
is 'numactl -C 0,2,4,6,8,10,12,14' "$two" -R 0
is 'numactl -m 1 -C 8-9' "$two" 0-1,8-9 -n 2 -R 1
is 'numactl -m 0 -C 2' "$two" -n 8 -R 1
LOCAL_WORLD_SIZE=4
export LOCAL_WORLD_SIZE
is 'numactl -m 1 -C 12,14' "$two" -R 3
is 'numactl -m 2,3 -C 4-7' 'Package:2 [NUMANode(memory=1GB)] [NUMANode(memory=1GB)] Core:4 PU:1' -n 2 -R 1
is 'numactl -m 7 -C 4200-4799' 'node:8 core:600 pu:1' -n 8 -R 7
[ "$(numa "$two" -n 2 -H | tr '\t' ' ')" = "0 0,2,4,6 bind 0
1 8,10,12,14 bind 1" ] || fail "table: $(numa "$two" -n 2 -H)"
numa "$two" -n 2 -J | grep -q '"policy": "bind"' || fail "JSON"

for LOCAL_WORLD_SIZE in -3 0 abc 4x 99999999; do
	fails 2 "LOCAL_WORLD_SIZE=$LOCAL_WORLD_SIZE: a whole number from 1 on" "$two" -R 0
done
is 'numactl -m 0 -C 2' "$two" -n 8 -R 1
unset LOCAL_WORLD_SIZE
fails 1 '8 cores are not one for each of 9 ranks' "$two" -n 9
fails 1 'rank 2 is not below 2' "$two" -n 2 -R 2
fails 1 'may not use processor 16' "$two" 0-16
fails 2 '0,0: numbers must ascend' "$two" 0,0
KMP_AFFINITY=compact
export KMP_AFFINITY
fails 1 'KMP_AFFINITY is set' "$two" -n 2
unset KMP_AFFINITY

# The line runs a program, where numactl is.
if command -v numactl >/dev/null; then
	$(fragctl numa -R 0) true || echo "numactl may not bind here"
fi
