#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# user.frag.* of parameters and states.
. "$top_srcdir/tests/mount/lib.sh"
command -v python3 >/dev/null || skip "no python3 to read xattrs with"
need_fuse
mount_fake rw
within 60 python3 - "$M" <<'END' || fail xattrs
import errno, os, sys
top = sys.argv[1] + "/"

def attrs(path):
    return {k[len("user.frag."):]: os.getxattr(top + path, k).decode() for k in os.listxattr(top + path)}

a = attrs("params/layers.0.weight/fp32")
assert a == {"name": "layers.0.weight", "shape": "512 1024", "dtype": "float32", "tensor": "float32 512 1024",
             "generation": "0", "tier": "host,swap", "owners": "0,1"}, a
a = attrs("now/layers.0.weight/fp32")
assert a["generations"] == "0:0,1:0" and "loss_scale" not in a, a
a = attrs("now/layers.0.weight/bf16")
assert a["generations"] == "0:0,1:0,2:0" and a["owners"] == "0,1,2" and a["tier"] == "", a
for path in "params/layers.0.weight/grad", "params/layers.0.weight/grad.npy", "now/layers.0.weight/grad":
    assert attrs(path)["loss_scale"] == "1024", path
a = attrs("params/odd%2Fname%2541%40x")
assert a == {"name": "odd/name%41@x", "shape": "3", "dtype": "bfloat16", "tensor": "bfloat16 3",
             "generation": "0"}, a
a = attrs("params/keys/x%2Fy z")
assert a["tier"] == "host,swap" and a["owners"] == "0,1", a
assert attrs("params/shard@tp=1")["name"] == "shard@tp=1"
long = [n for n in os.listdir(top + "params") if "~" in n]
names = {attrs("params/" + n)["name"] for n in long}
assert names == {"0123456789" * 30 + ".a", "0123456789" * 30 + ".b"}, names
assert attrs("step") == {} and attrs("groups/0/lr") == {}
for name, want in ("user.other", errno.ENODATA), ("security.capability", errno.EOPNOTSUPP):
    try:
        os.getxattr(top + "params/layers.0.weight/fp32", name)
    except OSError as e:
        assert e.errno == want, e
    else:
        raise SystemExit(name + " is there")
with open(top + "groups/0/grads_valid", "w") as f:
    f.write("0")
assert open(top + "groups/0/loss_scale").read() == ""
try:
    os.getxattr(top + "params/layers.0.weight/grad", "user.frag.loss_scale")
except OSError as e:
    assert e.errno == errno.ENODATA, e
else:
    raise SystemExit("a loss scale of gradients that are not valid")
END
unmount
