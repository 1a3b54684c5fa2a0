# SPDX-License-Identifier: Apache-2.0
"""Statistics of a mount against numpy, in float64: of a job of docs/examples/train while it trains (FRAG_SOURCE), of the
checkpoints in tests/data (a fifth of them; with TEST_ALL all), and of values that are odd.  FRAGFS is the program."""

import importlib.util
import json
import os
import shutil
import tarfile
import tempfile
import unittest
from pathlib import Path

import fragfs
from fragfs._dtypes import numpy_dtype

SOURCE = os.environ.get("FRAG_SOURCE")
NUMPY = importlib.util.find_spec("numpy") and importlib.util.find_spec("ml_dtypes")
CHECKPOINTS = sorted((Path(__file__).parents[2] / "tests/data/checkpoints").glob("*/*.tar.gz"))
WAIT_S, NAMES = 60, ("norm", "mean", "std", "min", "max", "absmax")

if NUMPY:
    import numpy as np


def expected(data: bytes, dtype: str) -> dict[str, float]:
    """What stats/ says of these bytes; numbers are scaled, since squares of a float64 may be none."""
    values = np.frombuffer(data, numpy_dtype(dtype)).astype(np.float64)
    nan, inf = np.isnan(values), np.isinf(values)
    finite = values[np.isfinite(values)]
    of: dict[str, float] = {"count": values.size, "nan": int(nan.sum()), "inf": int(inf.sum()), "zero": int((finite == 0).sum())}
    of["first_nan"] = int(nan.argmax()) if nan.any() else -1
    of["first_inf"] = int(inf.argmax()) if inf.any() else -1
    if not finite.size:
        return {**of, **dict.fromkeys(NAMES, float("nan"))}
    absmax = float(np.abs(finite).max())
    scaled = np.ldexp(finite, -int(np.frexp(absmax)[1]))
    back = int(np.frexp(absmax)[1])
    return {**of, "norm": float(np.ldexp(np.sqrt((scaled * scaled).sum()), back)),
            "mean": float(np.ldexp(scaled.mean(), back)), "std": float(np.ldexp(scaled.std(), back)),
            "min": float(finite.min()), "max": float(finite.max()), "absmax": absmax}


def histogram(data: bytes, dtype: str) -> dict[str, int]:
    values = np.frombuffer(data, numpy_dtype(dtype)).astype(np.float64)
    values = values[np.isfinite(values)]
    exponents, counts = np.unique(np.frexp(values[values != 0])[1] - 1, return_counts=True)
    return {"0": int((values == 0).sum()), **{f"2^{e}": int(n) for e, n in zip(exponents, counts)}}


@unittest.skipUnless(NUMPY, "numpy and ml_dtypes are not installed")
@unittest.skipUnless(SOURCE, "FRAG_SOURCE names no job: this machine may not mount")
class Statistics(unittest.TestCase):
    def compare(self, what: str, got: dict[str, float], want: dict[str, float]) -> None:
        for name in ("count", "nan", "inf", "zero", "first_nan", "first_inf", "min", "max", "absmax"):
            np.testing.assert_equal(got[name], want[name], f"{what} {name}")
        if np.isnan(want["norm"]):
            self.assertTrue(np.isnan(got["norm"]) and np.isnan(got["mean"]) and np.isnan(got["std"]), what)
            return
        np.testing.assert_allclose(got["norm"], want["norm"], 1e-12, err_msg=what + " norm")
        # A mean or deviation that is small beside the values has their rounding, not its own.
        for name, share in (("mean", 1e-13), ("std", 1e-12)):
            np.testing.assert_allclose(got[name], want[name], 1e-9, share * want["absmax"], err_msg=f"{what} {name}")

    def of_files(self, stats: Path) -> dict[str, float]:
        """All of `all`, whose null is a NaN, or no element."""
        all = json.loads((stats / "all").read_text())
        return {name: value if value is not None else -1 if name.startswith("first") else float("nan")
                for name, value in all.items()}

    def check(self, state: Path) -> None:
        """Of a state that does not change meanwhile."""
        data, dtype = state.read_bytes(), os.getxattr(state, "user.frag.dtype").decode()
        stats = state.parent / "stats" / state.name
        bins = dict(line.split("\t") for line in (stats / "hist").read_text().splitlines())
        self.compare(str(state), self.of_files(stats), expected(data, dtype))
        self.assertEqual({name: int(n) for name, n in bins.items()}, histogram(data, dtype), state)

    def test_of_a_job_while_it_trains(self) -> None:
        with fragfs.open(SOURCE, "rw") as mount:
            before = int(Path(mount.path, "generation").read_text())
            for param in sorted(Path(mount.path, "params").iterdir()):
                with mount.freeze(WAIT_S):
                    for key in ("fp32", "exp_avg", "exp_avg_sq", "bf16"):
                        self.check(param / key)
            self.assertGreater(int(Path(mount.path, "generation").read_text()), before, "it does not train")

    def check_table(self, source: Path) -> int:
        """Each line of .frag/stats against the bytes of its state; returns how many lines there are."""
        with fragfs.open(source) as mount:
            head, *lines = (line.split("\t") for line in Path(mount.path, ".frag/stats").read_text().splitlines())
            for line in lines:
                row = dict(zip(head, line))
                self.assertEqual(row["error"], "-", row)
                param = Path(mount.path, row["name"] if {"params", "buffers"} & set(row["name"].split("/")[:2])
                             else "params/" + row["name"])
                state = param / row["state"]
                got = {name: -1 if row[name] == "-" and name.startswith("first") else float(row[name].replace("-", "nan")
                       if row[name] == "-" else row[name]) for name in ("count", "nan", "inf", "zero", "first_nan",
                                                                        "first_inf", *NAMES)}
                self.compare(f"{source.name}: {row['name']}/{row['state']}", got,
                             expected(state.read_bytes(), os.getxattr(state, "user.frag.dtype").decode()))
            return len(lines)

    def test_of_checkpoints(self) -> None:
        self.assertTrue(CHECKPOINTS)
        for archive in CHECKPOINTS if os.environ.get("TEST_ALL") else CHECKPOINTS[::5]:
            folder = Path(tempfile.mkdtemp())
            self.addCleanup(shutil.rmtree, folder)
            with tarfile.open(archive) as tar:
                tar.extractall(folder)
            found = [*folder.rglob("latest_universal"), *folder.rglob("*model_states.pt")]
            self.assertGreater(self.check_table(found[0].parent), 5, archive)

    def test_of_odd_values(self) -> None:
        rng = np.random.default_rng(1)
        tensors: dict[str, tuple[str, list[int], bytes]] = {
            "empty": ("F32", [0, 3], b""), "scalar": ("F32", [], np.float32(-7.5).tobytes()),
            "payloads": ("F32", [4], np.array([0x7fc00001, 0xffc12345, 0x7f800001, 0x80000000], np.uint32).tobytes()),
            "subnormal": ("F32", [2000], np.arange(2000, dtype=np.uint32).tobytes()),
            "wide": ("F64", [3000], (rng.standard_normal(3000) * 10.0 ** rng.integers(-320, 308, 3000)).tobytes()),
            "huge": ("F64", [2048], (rng.uniform(-1, 1, 2048) * 1.7e308).tobytes()),
            "tiny": ("F64", [2048], rng.uniform(-1e-310, 1e-310, 2048).tobytes()),
            "infinite": ("F64", [3], np.array([-np.inf, 1, np.inf]).tobytes()),
        }
        for name, dtype, size in (("F16", np.uint16, 2), ("BF16", np.uint16, 2), ("F8_E4M3", np.uint8, 1),
                                  ("F8_E5M2", np.uint8, 1), ("I8", np.uint8, 1), ("U8", np.uint8, 1),
                                  ("I16", np.uint16, 2), ("U16", np.uint16, 2)):
            values = np.arange(256 ** size, dtype=np.uint64).astype(dtype)  # all there are
            tensors[name.lower()] = (name, [values.size], values.tobytes())
        for name in ("I32", "U32", "I64", "U64"):
            tensors[name.lower()] = (name, [500], rng.bytes(500 * int(name[1:]) // 8))
        header, data = {}, b""
        for name, (dtype, shape, some) in sorted(tensors.items(), key=lambda t: -len(t[1][2])):
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(some)]}
            data += some
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
        self.assertGreaterEqual(self.check_table(folder), len(tensors))


if __name__ == "__main__":
    unittest.main()
