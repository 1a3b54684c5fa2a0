# SPDX-License-Identifier: Apache-2.0
# .frag/stats of a job of 10 000 parameters on 4 ranks, against numpy over plain files of as many bytes.
# FRAG_BENCH_STATS_BYTES: of all parameters.  FRAG_BENCH_PYTHON: a python with numpy (python3); without one there is
# no reference.
. "$(dirname "$0")/lib.sh"

params=10000
bytes=${FRAG_BENCH_STATS_BYTES:-$((256 << 20))}
python=${FRAG_BENCH_PYTHON:-python3}
[ "$rounds" -lt 5 ] || rounds=5

# A mount keeps the table of a generation.
table() {
	[ -z "$mounts" ] || unmount "$work/frag"
	mount_frag "$work/frag"
	"$tools/measure" time cat "$work/frag/.frag/stats"
}

numpy() { "$tools/measure" time "$python" "$work/reference.py" "$shm"; }

cat >"$work/reference.py" <<'END'
import os, sys, numpy
for name in sorted(os.listdir(sys.argv[1])):
    a = numpy.fromfile(os.path.join(sys.argv[1], name), numpy.float32)
    print(name, numpy.isnan(a).sum(), numpy.isinf(a).sum(), (a == 0).sum(), numpy.sqrt(numpy.dot(a.astype(float), a)),
          a.mean(dtype=float), a.std(dtype=float), a.min(), a.max(), sep="\t")
END

start_job 4 "$bytes" "$params"
mkdir -p "$work/frag"
name=".frag/stats, 10k parameters, 4 ranks"
if "$python" -c 'import numpy' 2>/dev/null; then
	rm -rf "$shm"/*
	"$python" -c "import numpy
for i in range($params): numpy.random.default_rng(i).random($bytes // $params // 4, numpy.float32).tofile('$shm/%06d' % i)"
	interleave table numpy
	row "$name" "$(median table)" s 'numpy, files in tmpfs' "$(median numpy)" 0.2 lower
else
	echo "$python: no numpy, which .frag/stats is compared to" >&2
	interleave table
	row "$name" "$(median table)" s null null null lower
fi
unmount "$work/frag"
stop_job
