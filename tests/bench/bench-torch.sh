# SPDX-License-Identifier: Apache-2.0
# Jobs of torch and DeepSpeed, attached: what reading them costs against the framework's own calls, what it costs
# their steps, and what attaching costs.  torch-job.py has the rows.  FRAG_BENCH_PYTHON: has torch and deepspeed.
home=$HOME # where DeepSpeed keeps what it has compiled
. "$(dirname "$0")/lib.sh"

python=${FRAG_BENCH_PYTHON:-python3}
source=$(cd "$(dirname "$0")" && pwd)
PYTHONPATH=$work/python FRAGFS=$builddir/fragfs FRAG_LIBRARY=$builddir/.libs/libfrag.so
DS_ACCELERATOR=cpu MASTER_ADDR=127.0.0.1 FRAG_PLAIN=1 BENCH_ROUNDS=$rounds BENCH_SHM=$shm OMP_NUM_THREADS=1
export PYTHONPATH FRAGFS FRAG_LIBRARY DS_ACCELERATOR MASTER_ADDR FRAG_PLAIN BENCH_ROUNDS BENCH_SHM OMP_NUM_THREADS
"$python" -c 'import torch, numpy' 2>/dev/null || skip "$python has no torch, or no numpy"
# Compiled, as pip leaves it: else the memory in which Python compiles it counts as attach's.
mkdir "$work/python"
cp -R "$source/../../python/fragfs" "$work/python"
"$python" -m compileall -q "$work/python"

# of RANKS ARGUMENTS...: rank 0's rows.
of() {
	WORLD_SIZE=$1 FRAG_JOB_ID=bench-torch-$$-$2
	MASTER_PORT=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	export WORLD_SIZE FRAG_JOB_ID MASTER_PORT
	shift
	measuring="$*"
	rank=$WORLD_SIZE
	while [ "$rank" -gt 0 ]; do
		rank=$((rank - 1))
		HOME=$home RANK=$rank LOCAL_RANK=$rank "$python" "$source/torch-job.py" "$@" 2>"$work/log.$rank" &
		job="$job $!"
	done
	status=0
	for pid in $job; do wait "$pid" || status=1; done
	job=''
	[ $status = 0 ] || { tail -n 20 "$work"/log.* >&2; exit 1; }
}

of 2 fsdp2
if "$python" -c 'import deepspeed' 2>/dev/null; then
	of 2 zero2
else
	echo "bench-torch: no rows of DeepSpeed: $python has none" >&2
fi
of 1 attach
