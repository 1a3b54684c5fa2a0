#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fragctl shows what the files of a mount say, as a table and as JSON.
# fragctl-fake is fragctl over the made-up job of tests/fs/fake-engine.h.
set -eu
cd "$TMPDIR"
fragctl() {
	fragctl-fake "$@"
}
mkdir -p m/.frag m/params/a.weight m/params/b.weight
cat >m/.frag/health <<'END'
rank state step generation boundary phase way bytes since_ms pid host address why
0 alive 17 18 35 stable host 1048576 5120 4242 node0 tcp://127.0.0.1:21017 -
1 lost 16 17 33 step zmq 1048576 900 4243 node1 tcp://127.0.0.2:21017 no answer for 10 s
END
printf 'job run-7\nworld 2\n' >m/.frag/config
echo stable >m/phase
echo 17 >m/step
echo 18 >m/generation

fragctl status "$TMPDIR/m" >out
line() { grep -q -- "$1" out || { echo "no line $1 in:"; cat out; exit 1; }; }
line 'job run-7$'
line '^world 2 (1 alive), step 17, generation 18, phase stable, 2 params, host 2.0M$'
line '^ *0  node0 *4242  alive *host *17  stable *1.0M$'
line '^ *1  node1 *4243  lost *zmq *16  step *1.0M  no answer for 10 s$'
line '^this machine: huge pages '

fragctl status --json m >out
for want in '"major": 1' '"job": "run-7"' '"world": 2' '"alive": 1' '"params": 2' '"host": 2097152' \
	'"why": "no answer for 10 s"' '"transparent_hugepage": "'; do
	line "$want"
done
if command -v python3 >/dev/null; then
	python3 -c 'import json; d = json.load(open("out")); assert len(d["mounts"][0]["ranks"]) == 2'
fi

cat >m/.frag/health <<'END'
rank state step generation boundary phase way bytes swap_bytes device_bytes since_ms pid host address why
0 alive 17 18 35 stable host 1048576 3145728 2097152 5120 4242 node0 tcp://127.0.0.1:21017 -
END
fragctl status m >out
line ' params, host 1.0M, NVMe 3.0M, devices 2.0M$'
line '^ *0  node0 .* 6.0M$'
fragctl status --json m >out
line '"device": 2097152'
line '"swap_errors": 0'

cat >m/.frag/health <<'END'
rank state step generation boundary phase way bytes swap_bytes swap_errors swap_damaged fabric since_ms pid host address why
0 alive 17 18 35 stable host 1048576 3145728 1 0 no 5120 4242 node0 tcp://127.0.0.1:21017 -
1 alive 17 18 35 stable zmq 1048576 3145728 2 3 yes 5120 4243 node1 tcp://127.0.0.2:21017 -
END
fragctl status m >out
line ' params, host 2.0M, NVMe 6.0M, 3 disk errors, 3 damaged blocks$'
line '^ *0  node0 .* 4.0M  1 disk error$'
line '^ *1  node1 .* 4.0M  2 disk errors, 3 damaged blocks$'
fragctl status --json m >out
line '"swap_errors": 3'
line '"swap_damaged": 3'
line '"fabric": true'

# A name that is not UTF-8.
printf 'job caf\351\nworld 2\n' >m/.frag/config
fragctl status --json m >out
line '"job": "caf%E9"'
printf 'job run-7\nworld 2\n' >m/.frag/config

# Who waits for whom, where ranks stand apart.
cat >m/.frag/health <<'END'
rank state step generation boundary boundary_ms phase way bytes since_ms pid host address why
0 alive 20 20000000 40 12000 stable host 1048576 5120 4242 node0 tcp://127.0.0.1:21017 -
1 lost 10 20000000 20 99000 stable host 1048576 5120 4242 node0 tcp://127.0.0.1:21017 -
2 alive 26 26000000 52 9500 stable host 1048576 5120 4243 node0 tcp://127.0.0.1:21017 -
END
{
	echo 'read w fp32 bytes 0 of 8, 0 ranks asked, no progress for 9 ms, waits 7 ms for rank 0, at boundary 40'
	echo 'read v fp32 bytes 0 of 8, 1 ranks asked, no progress for 9 ms'
	echo 'read v grad bytes 0 of 8, 0 ranks asked, no progress for 9 ms, waits 7 ms for rank 0, at boundary 40'
	echo 'commit groups/0 lr bytes 8, 3 ranks: staging, 2 of 3 messages taken, waits for rank 2, which has not answered for 140 ms'
	echo 'commit v fp32 bytes 8, 1 ranks: waiting for its boundary 53; rank 0 stands at boundary 40 for 12000 ms'
} >m/.frag/inflight
fragctl status m >out
line '^no rank gets on: rank 0 at boundary 40 for 12 s, rank 2 at boundary 52 for 9 s$'
line '^2 reads wait for ranks that are behind or silent: read w fp32 .* for rank 0, at boundary 40$'
line '^2 edits wait for ranks or their boundary: commit groups/0 lr .* for 140 ms$'
fragctl status --json m >out
line '"boundary_ms": 9500'
line '"waiting": 2'
line '"waiting_edits": 2'
: >m/.frag/inflight
sed -i 's/ 9500 / 500 /' m/.frag/health
fragctl status m >out
! grep -E 'gets on|wait' out || { echo "ranks that get on are told of"; exit 1; }

# Ranks whose control page was not seen stand nowhere.
cat >m/.frag/health <<'END'
rank state step generation boundary boundary_ms phase way bytes since_ms pid host address why
0 alive 7 7000000 14 15000 stable zmq 1048576 15120 4242 node0 tcp://127.0.0.1:21017 -
1 alive 0 0 0 15000 - - 0 15120 4243 node0 tcp://127.0.0.1:21017 -
2 alive 7 7000000 14 15000 stable zmq 1048576 15120 4244 node0 tcp://127.0.0.1:21017 -
END
fragctl status m >out
line '^ *1  node0 *4243  alive *- *-  - *0B$'
! grep 'gets on' out || { echo "a rank that was not seen is told of"; exit 1; }

# Who does not answer, and is not lost yet.
cat >m/.frag/health <<'END'
rank state step generation boundary phase way bytes since_ms silent_ms pid host address why
0 alive 20 20000000 40 stable host 1048576 5120 40 4242 node0 tcp://127.0.0.1:21017 -
1 lost 10 20000000 20 stable host 1048576 5120 9000 4242 node0 tcp://127.0.0.1:21017 no answer
2 alive 26 26000000 52 stable host 1048576 5120 8197 4243 node0 tcp://127.0.0.1:21017 -
END
fragctl status m >out
line '^ *0 .* 1.0M$'
line '^ *1 .* 1.0M  no answer$'
line '^ *2 .* 1.0M  silent for 8 s$'
fragctl status --json m >out
line '"silent_ms": 8197'

fragctl status fake:4 >out
line '^fake:4, job fake$'
line '^world 3 (2 alive), step 41, generation '
line '^ *2  node *1002  lost *host *0  stable *1.0M  its process has ended$'

fails() { # fails STATUS TEXT ARGUMENT...
	status=$1 text=$2
	shift 2
	got=0
	fragctl "$@" >out 2>&1 || got=$?
	[ "$got" = "$status" ] || { echo "fragctl $*: exit $got, not $status"; cat out; exit 1; }
	grep -q -- "$text" out || { echo "fragctl $*: no $text in:"; cat out; exit 1; }
	[ "$status" != 2 ] || [ "$(wc -l <out)" = 1 ] || { echo "fragctl $*: not one line:"; cat out; exit 1; }
}
fails 1 'none:1: ' status none:1
fails 1 'nowhere: No such file' status nowhere
fails 1 'm/params: no mount of fragfs is there' status m/params
# A norm that is not finite has a full bar, and no other a shorter one.
for p in a b c; do
	mkdir -p "m/params/$p.weight/stats/fp32"
done
mkdir -p m/groups/0/params/a.weight m/groups/1/params/b.weight m/groups/2/params/c.weight m/groups/3/params
echo '{"norm": 1e200, "nan": 0, "inf": 0}' >m/params/a.weight/stats/fp32/all # its square is not finite
echo '{"norm": 2, "nan": 0, "inf": 0}' >m/params/b.weight/stats/fp32/all
echo '{"norm": 1, "nan": 0, "inf": 0}' >m/params/c.weight/stats/fp32/all
fragctl top --ascii --once -j m >out
line '^ *0  *inf  |#\{24\}|'
line '^ *1  *2  |#\{24\}|'
line '^ *2  *1  |#\{12\} \{12\}|'
line '^ *3  *-$'
rm -rf m/groups m/params/c.weight m/params/*/stats

echo 'something else' >m/.frag/health
fails 1 'm/.frag/health: not the file of a fragfs mount' status m
fails 2 'fragctl --help' nonsense
fails 2 'fragctl --help'
fails 2 'fragctl: --jsn: unknown option' --jsn status
fails 2 'fragctl: -y: unknown option' -Jy
fails 2 'fragctl: --json=1: it takes no value' status --json=1
fails 2 'fragctl: -z: unknown option' status --json -zx
fails 2 'fragctl: -o needs a value' ls -o
fails 2 'fragctl: -j needs a value' ls --job
for wrong in 'freeze -t' 'freeze --time' 'freeze --time='; do
	# shellcheck disable=SC2086 # words
	fails 2 'fragctl: -t : seconds, a whole number from 1 to 86400' $wrong
done
fails 2 'expected: fragctl freeze ' freeze --
fails 2 'expected: fragctl thaw ' thaw --
fails 2 'a COMMAND has standard output for itself' freeze -J -- true
fails 2 'expected: fragctl status|jobs|' --
for wrong in 'freeze a b' 'thaw a b' 'thaw -t 5' 'freeze -t' 'freeze -t 0' 'freeze -t x' 'freeze -t 5s' 'freeze -j' \
	'status -t 5' 'freeze --' 'thaw m -- true' 'jobs -- true'; do
	# shellcheck disable=SC2086 # words
	fails 2 'fragctl' $wrong
done
for wrong in 0 x 5s 86401 -1; do
	fails 2 "fragctl: -t $wrong: seconds, a whole number from 1 to 86400" freeze -t $wrong
done
fails 1 'm: no mount of fragfs is there' freeze m
fails 1 'm: no mount of fragfs is there' thaw m

mkdir -p "$XDG_RUNTIME_DIR"
fragctl jobs >out
line '^JOB  *ADDRESS  *WORLD  *PID  *KEY_FILE$'
fragctl --json jobs >out
line '"jobs": \[\]'

fragctl key job.key
[ "$(stat -c '%a %s' job.key)" = '600 65' ] || { ls -l job.key; exit 1; }
fragctl key --readers job.key >readers
grep -qx 'readers [0-9a-f]\{64\}' readers || { cat readers; exit 1; }
grep -q "$(cat job.key)" readers && { echo "the job's key is in the one for readers"; exit 1; }
chmod 600 readers
fragctl key --readers readers | cmp - readers
fails 1 'job.key: File exists' key job.key
fails 1 'nowhere/key: No such file' key nowhere/key
chmod 644 job.key
fails 1 'others may read it' key --readers job.key
fails 2 'fragctl --help' key
chmod 600 job.key
fragctl key --json --readers job.key >out
line "\"readers\": \"$(cat readers)\""
fragctl key --json other.key >out
line '"file": "other.key"'
line '"readers": null'
fails 2 'fragctl --help' jobs --readers

# Maps.  The second block of rank 3 lies across the border of two cells.
for r in 0 1 2 3; do
	mkdir -p "m/ranks/$r"
done
figures='bytes 4000 used 1350 used_max 3000 free 2650 largest 2000 blocks 3 holes 2 moved 700'
{
	echo "$figures"
	printf '0\t1000\tused\tlayers.0.w\tlayers.0.b/shard\n1500\t250\tpinned\n3900\t100\tmoving\tx@tp%%3D1\n'
} >m/ranks/3/arena
COLUMNS=47 fragctl arena --ascii m >out
line '^rank 3: 3.9K, used 1.3K in 3 blocks, high water 2.9K, free 2.6K in 2 holes, largest 2.0K, fragmented 25 %, moved 700B$'
line '^    0B ##########.....##=.....................#$'
LC_ALL=C fragctl arena m >out
line '^    0B ##[#=.%-]*$'
if locale -a 2>/dev/null | grep -qix 'c.utf-\?8'; then
	COLUMNS=47 LC_ALL=C.UTF-8 fragctl arena m >out
	line '^    0B ██████████·····██▒·····················█$'
fi
fragctl arena --json m >out
for want in '"rank": 3' '"used_max": 3000' '"fragmentation": 0.245' '"state": "pinned"' '"layers.0.b/shard"' '"x@tp%3D1"'; do
	line "$want"
done
if command -v python3 >/dev/null; then
	python3 -c 'import json; d = json.load(open("out")); assert len(d["ranks"][0]["blocks"]) == 3'
fi
{
	echo "$figures" | sed 's/blocks 3/blocks 5/'
	printf '0\t1000\tused\nand 4 more\n'
} >m/ranks/3/arena
fragctl arena --ascii m >out
line '^(the map has the first 1 blocks)$'
fails 1 'm: rank 1 has no arena' arena -R 1 m
fails 1 'm: there is no rank 9, they are 0 to 3' arena --rank 9 m
fails 1 'm/params: no mount of a job is there' arena -R 0 m/params
for wrong in x -1 1x 65536 123456; do
	fails 2 "fragctl: -R $wrong: a rank, a whole number from 0 to 65535" arena -R $wrong m
done
fails 2 'fragctl: -R : a rank, a whole number from 0 to 65535' arena m -R
fails 2 'fragctl --help' arena m n
fails 2 'fragctl --help' status -R 1 m
bad_map() { # bad_map WHY TEXT
	printf "$2" >m/ranks/3/arena
	fails 1 "m/ranks/3/arena: $1" arena m
}
bad_map none 'none\n'
bad_map 'it is empty' ''
bad_map 'Bad message' "$figures\n0\t4001\tused\n"
bad_map 'Bad message' "$figures\n18446744073709551615\t2\tused\n"
bad_map 'Bad message' "$figures\n1 2\n"
bad_map 'Bad message' "$figures\n1\t2\n"
rm m/ranks/3/arena
fails 1 'm: no rank of the job has an arena' arena m

# A parameter of which nothing can be compared, and the status is that of a difference.
mkdir -p a/.frag a/params/x/stats/fp32 b/.frag b/params/x/stats
fails 3 "^x	no state in B\$" diff a b -H -o name,note
fails 3 "^x	no state in A\$" diff b a -H -o name,note
mkdir b/params/x/stats/bf16
fails 3 "^x	no state in common\$" diff -e a b -H -o name,note
rmdir a/params/x/stats/fp32 b/params/x/stats/bf16
fails 3 "^x	no state in A and B\$" diff a b -H -o name,note
# Nor one whose states cannot be listed, which is an error.
rmdir b/params/x/stats
fails 1 "^x	No such file or directory\$" diff a b -H -o name,note
grep -q '^fragctl: x: No such file or directory$' out || { cat out; exit 1; }
fails 1 '^fragctl: x: No such file or directory$' ls -j b
fails 1 "^x	-\$" ls -j b -H -o name,states
for slice in x x/fp32; do
	fails 1 '^fragctl: x: No such file or directory$' get -j b "$slice"
done
# bench reads what it can, and says what it cannot.
mkdir -p b/params/y/stats/fp32
head -c 8192 /dev/zero >b/params/y/fp32
fails 1 '^fragctl: x: No such file or directory$' bench -j b -H -o what
grep -q '^mount, 4K$' out || { cat out; exit 1; }
rm -r b/params/y
# A pattern that matches on one side finds what that side alone has.
mkdir -p b/params/lora.x
fails 3 "^lora.x	only in B\$" diff a b 'lora.*' -H -o name,note
fails 3 "^lora.x	only in A\$" diff b a 'lora.*' -H -o name,note
[ "$(wc -l <out)" = 1 ] || { cat out; exit 1; }
fails 1 '^fragctl: none\*: no parameter has that name$' diff a b 'lora.*' 'none*'

comms='op\tsize\tcount\tbytes\tmin_us\tp50_us\tp99_us\tmax_us\talgbw_gbps\tbusbw_gbps\tcaller\n'
printf "$comms"'read\t1024\t3\t4500\t1.5\t20.25\t300\t400\t12.5\t12.5\ta.c:12\nothers\t0\t7\n\nrank\tcount\tbehind_us\tbehind_max_us\n1\t2\t3.5\t4\n' >m/.frag/comms
fragctl comms m >out
line '^read  *1.0K  *3  *4.4K  *20.25  *300  *12.5  *12.5  a.c:12$'
line '^others  *0B  *7 '
line '^ *1  *2  *3.5  *4$'
fragctl comms -H -p -o op,bytes,max_us m >out
[ "$(head -n 1 out)" = "read	4500	400" ] && [ "$(wc -l <out)" = 2 ] || { cat out; exit 1; }
fragctl comms --json m >out
line '"output_version": {'
line '"command": "fragctl comms"'
line '"behind_max_us": 4.0'
line '"count": 7'
echo off >m/ranks/3/comms
fails 1 'm/ranks/3/comms: nothing is counted without FRAG_COMMS=1' comms -R 3 m
fails 1 'm: there is no rank 99, they are 0 to 3' comms -R 99 m
fails 1 "$TMPDIR: no mount of a job is there" comms "$TMPDIR"
fails 1 'm/params: no mount of a job is there' arena m/params
# Where mounts cannot be listed the line says why.
if unshare -m true 2>/dev/null; then
	got=0
	unshare -m sh -c 'mount -t tmpfs none /proc && exec fragctl ls' >out 2>&1 || got=$?
	[ "$got" = 1 ] && grep -q '^fragctl: /proc/self/mounts: No such file or directory$' out || { cat out; exit 1; }
fi
