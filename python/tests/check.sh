#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh PYTHON: all tests of python/tests by one python, of the build in $top_builddir (build/), with a job of
# docs/examples/train for those that read one.  Exit status 0: none has failed.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
top_builddir=${top_builddir:-$top/build}
work=$(mktemp -d)
ranks=
trap 'kill -9 $ranks 2>/dev/null && wait $ranks 2>/dev/null || :; rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

export PYTHONPATH="$top/python" FRAGFS="$top_builddir/fragfs" \
	FRAG_LIBRARY="$top_builddir/.libs/libfrag.so" DS_ACCELERATOR=cpu XDG_RUNTIME_DIR="$work"
# DeepSpeed compiles an operator at first use, on a busy machine for longer than a test may take, and waits for ever where a
# process was killed while it had the lock.
TORCH_EXTENSIONS_DIR=$("$1" -c 'import sys; print(sys.prefix)')/torch_extensions
export TORCH_EXTENSIONS_DIR
[ ! -d "$TORCH_EXTENSIONS_DIR" ] || find "$TORCH_EXTENSIONS_DIR" -name lock -delete
! "$1" -c 'import deepspeed' 2>/dev/null || "$1" -c 'from deepspeed.comm.torch import build_shm_op; build_shm_op()'
for rank in 0 1; do
	FRAG_JOB_ID=check-$$ WORLD_SIZE=2 RANK=$rank "$top_builddir/docs/examples/train" --stage 2 --forever --every 5 --pause-ms 5 \
		>"$work/$rank" 2>&1 &
	ranks="$ranks $!"
done
i=0
until grep -q '^step' "$work/0"; do
	i=$((i + 1))
	[ $i -lt 600 ] || { cat "$work/0" >&2; exit 1; }
	sleep 0.1
done
FRAG_SOURCE=$(sed -n 's/^train: address //p' "$work/0") "$1" -m unittest discover -v -s "$top/python/tests"
