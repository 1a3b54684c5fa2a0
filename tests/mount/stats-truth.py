# SPDX-License-Identifier: Apache-2.0
"""stats-truth.py MOUNTPOINT: stats/STATE/all and .frag/stats are what numpy makes of the states' bytes, in float64.

Sums are made in longdouble, so that no square overflows.  Prints how many states it has compared.
"""

import json
import os
import sys

import numpy as np

TOLERANCE = 1e-11
COUNTS = "count", "nan", "inf", "zero", "first_nan", "first_inf"
NUMBERS = "norm", "mean", "std", "min", "max", "absmax"


def float8(mantissa, bias, fnuz, infinities):
    """The 256 values of a format of 8 bits."""
    values = np.empty(256)
    for b in range(256):
        exponent, fraction = (b & 0x7F) >> mantissa, b & (1 << mantissa) - 1
        value = np.ldexp(float(fraction + (exponent > 0) * (1 << mantissa)), max(exponent, 1) - bias - mantissa)
        if fnuz:
            value = np.nan if b == 0x80 else value
        elif infinities and exponent == 31:
            value = np.nan if fraction else np.inf
        elif not infinities and b & 0x7F == 0x7F:
            value = np.nan
        values[b] = -value if b & 0x80 else value
    return values


FLOAT8 = {
    "float8_e4m3fn": float8(3, 7, False, False),
    "float8_e5m2": float8(2, 15, False, True),
    "float8_e4m3fnuz": float8(3, 8, True, False),
    "float8_e5m2fnuz": float8(2, 16, True, False),
    "float8_e8m0fnu": np.array([2.0 ** (b - 127) for b in range(255)] + [np.nan]),
}


def values_of(path):
    dtype = os.getxattr(path, "user.frag.dtype").decode()
    data = open(path, "rb").read()
    if dtype == "bfloat16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype in FLOAT8:
        return FLOAT8[dtype][np.frombuffer(data, np.uint8)]
    return np.frombuffer(data, np.dtype(dtype)).astype(np.float64)


def truth(a):
    def first(mask):
        return int(np.argmax(mask)) if mask.any() else None

    nan, inf = np.isnan(a), np.isinf(a)
    finite = a[~(nan | inf)].astype(np.longdouble)
    want = dict(count=a.size, nan=int(nan.sum()), inf=int(inf.sum()), zero=int((a == 0).sum()), first_nan=first(nan),
                first_inf=first(inf))
    if not finite.size:
        return {**want, **dict.fromkeys(NUMBERS)}
    mean = finite.mean()
    return dict(want, norm=np.sqrt((finite * finite).sum()), mean=mean, std=np.sqrt(((finite - mean) ** 2).mean()),
                min=finite.min(), max=finite.max(), absmax=np.abs(finite).max())


def compare(what, got, want):
    for name in COUNTS:
        assert got[name] == want[name], (what, name, got[name], want[name])
    for name in NUMBERS:
        if want[name] is None or want[name] > np.finfo(np.float64).max:
            assert got[name] is None, (what, name, got[name], want[name])
            continue
        room = TOLERANCE * (want["absmax"] if name in ("mean", "std") else abs(want[name]))
        assert got[name] is not None and abs(got[name] - want[name]) <= room, (what, name, got[name], want[name])


def line_of(names, line):
    fields = dict(zip(names, line.split("\t")))
    got = {name: None if fields[name] == "-" else int(fields[name]) for name in COUNTS}
    for name in NUMBERS:
        value = float(fields[name])
        got[name] = value if np.isfinite(value) else None
    return (fields["name"], fields["state"]), got


def main():
    mount, compared = sys.argv[1], 0
    names, *lines = open(mount + "/.frag/stats").read().splitlines()
    table = dict(line_of(names.split("\t"), line) for line in lines if line.endswith("\t-"))
    for folder, below, _ in os.walk(mount):
        if os.path.basename(folder) not in ("params", "buffers") or "/ranks/" in folder or "/groups/" in folder:
            continue
        for param in below:
            base = os.path.join(folder, param)
            states = os.listdir(base + "/stats") if os.path.isdir(base + "/stats") else []
            for state in states:
                if state.startswith("complex"):  # have none
                    continue
                try:
                    want = truth(values_of(base + "/" + state))
                except OSError:
                    if state == "grad":  # not valid now
                        continue
                    raise
                compare(base + "/" + state, json.load(open("%s/stats/%s/all" % (base, state))), want)
                key = (param if folder == mount + "/params" else os.path.relpath(base, mount), state)
                if key in table:
                    compare(".frag/stats " + str(key), table[key], want)
                    compared += 1
        below.clear()
    assert compared, "nothing"
    print(compared)


main()
