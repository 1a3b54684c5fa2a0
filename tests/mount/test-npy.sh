#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# NAME.npy is a header and the same bytes.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
mount_fake

for file in tail/exp_avg layers.0.weight/bf16 scale/fp32 empty/fp32 shard@tp=0/grad; do
	npy=$M/params/$file.npy
	within 60 cat "$npy" >"$T/npy"
	[ "$(stat -c %s "$npy")" = "$(stat -c %s "$T/npy")" ] || fail "st_size of $file.npy"
	header=$(($(stat -c %s "$T/npy") - $(stat -c %s "$M/params/$file")))
	[ $((header % 64)) = 0 ] || fail "$file: data begins at $header"
	tail -c +$((header + 1)) "$T/npy" | cmp - "$M/params/$file" || fail "$file: other bytes"
	# Ranges that begin in the header and end in the data.
	dd if="$npy" bs=100 count=3 2>/dev/null | cmp -n 300 - "$T/npy" || fail "$file: begin"
done
head -c 128 "$M/params/layers.0.weight/bf16.npy" |
	grep -aq "{'descr': '<u2', 'fortran_order': False, 'shape': (512, 1024), }" ||
	fail "header of bf16"
unmount

python3 -c 'import numpy' 2>/dev/null || { echo "np.load not tried: no numpy"; exit 0; }
mount_fake
within 60 python3 - "$M" <<'END'
import sys, numpy as np
for name, shape in ("layers.0.weight", (512, 1024)), ("scale", ()), ("empty", (0, 4)):
    for key in "fp32", "exp_avg":
        base = f"{sys.argv[1]}/params/{name}/{key}"
        a = np.load(base + ".npy")
        assert a.shape == shape and a.dtype == np.float32, (a.shape, a.dtype)
        assert a.tobytes() == open(base, "rb").read()
END
unmount
