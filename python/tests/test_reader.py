# SPDX-License-Identifier: Apache-2.0
"""fragfs.open over a job of docs/examples/train that is running: FRAG_SOURCE is its HOST:PORT, FRAGFS the program."""

import array
import contextlib
import ctypes
import errno
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

import fragfs
from fragfs import _job, _libfrag
from fragfs.reader import _GROUP_FACTS, Edit, _escape, _state_file, _unescape

SOURCE = os.environ.get("FRAG_SOURCE")
NUMPY = importlib.util.find_spec("numpy")


class Names(unittest.TestCase):
    def test_escapes(self) -> None:
        for file, name in (("a%2Fb", "a/b"), ("%", ""), ("100%25", "100%"), ("w@tp=1", "w@tp=1"), ("%2E%2E", ".."),
                           ("%6Bind", "kind"), ("a\udcc0%2F", "a\udcc0/")):  # the last has a byte that is not UTF-8
            self.assertEqual(_unescape(file), name)
            if "@" not in name:  # where a coordinate begins
                self.assertEqual(_escape(name, _GROUP_FACTS), file)
        for file, key in (("%73tats", "stats"), ("%65lem", "elem"), ("x%2Enpy", "x.npy"), ("kind", "kind")):
            self.assertEqual(_unescape(file), key)
            self.assertEqual(_state_file(key), file)

    def test_a_state_without_attributes_is_none_any_more(self) -> None:
        with tempfile.NamedTemporaryFile(dir=".") as file, self.assertRaises(FileNotFoundError):
            fragfs.reader.State(file.name).dtype

    def test_a_state_without_axes_has_no_length(self) -> None:
        scalar = unittest.mock.patch.object(fragfs.reader.State, "_tensor", return_value=("float32", ()))
        for ask in (len, list):
            with scalar, self.assertRaisesRegex(TypeError, "no axes"):
                ask(fragfs.reader.State("fp32"))

    def test_a_source_that_is_none_says_why(self) -> None:
        with self.assertRaisesRegex(OSError, "no-such-checkpoint"):
            fragfs.open("/no-such-checkpoint/of/mine")


@unittest.skipUnless(SOURCE, "FRAG_SOURCE names no job: this machine may not mount")
class LargeState(unittest.TestCase):
    def test_the_kernel_keeps_no_pages_of_it(self) -> None:
        data = bytes(range(256)) * (8 << 10)
        header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        Path(folder, "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
        with fragfs.open(folder) as checkpoint:
            state = next(state for state in checkpoint["w"].values() if state.dtype == "uint8")
            for count in (1, 2):
                self.assertEqual(state.bytes(), data)
                metrics = Path(checkpoint.path, ".frag", "metrics").read_text()
                self.assertIn(f"\nfragfs_read_bytes_total {count * len(data)}\n", metrics)


@unittest.skipUnless(SOURCE, "FRAG_SOURCE names no job: this machine may not mount")
class Checkpoint(unittest.TestCase):
    """A safetensors file, written by hand: 1, -2 and 0.5 in the dtypes that numpy does not have."""

    DTYPES = {"bfloat16": ("BF16", "803f00c0003f"), "float8_e4m3fn": ("F8_E4M3", "38c030"),
              "float8_e5m2": ("F8_E5M2", "3cc038"), "float16": ("F16", "003c00c00038")}

    def setUp(self) -> None:
        self.folder = folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        header, data = {}, b""
        for name, (dtype, text) in self.DTYPES.items():
            at, data = len(data), data + bytes.fromhex(text)
            header[name] = {"dtype": dtype, "shape": [3], "data_offsets": [at, len(data)]}
        text = json.dumps(header).encode()
        Path(folder, "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
        self.checkpoint = fragfs.open(folder)
        self.addCleanup(self.checkpoint.close)

    def read(self, kind: str) -> None:
        for name in self.DTYPES:
            state = next(state for state in self.checkpoint[name].values() if state.dtype == name)
            self.assertIn(name, str(getattr(state, kind)().dtype))
            self.assertEqual([float(x) for x in getattr(state, kind)()], [1, -2, 0.5])

    @unittest.skipUnless(importlib.util.find_spec("ml_dtypes"), "ml_dtypes is not installed")
    def test_numpy(self) -> None:
        self.read("numpy")

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_torch(self) -> None:
        self.read("torch")

    @unittest.skipUnless(importlib.util.find_spec("ml_dtypes"), "ml_dtypes is not installed")
    def test_an_edit_of_each_dtype(self) -> None:
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        with fragfs.open(self.folder, "rw", f"overlay={folder}") as checkpoint:
            for name in self.DTYPES:
                state = next(state for state in checkpoint[name].values() if state.dtype == name)
                state[1:] = [0.5, -1]
                self.assertEqual([float(x) for x in state.numpy()], [1, 0.5, -1])

    @unittest.skipUnless(NUMPY, "numpy is not installed")
    def test_an_edit_that_is_interrupted_is_not_made_by_close(self) -> None:
        real_close = os.close

        def close(fd: int) -> None:  # as of a mount behind an fsync(2) that was interrupted
            real_close(fd)
            raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))

        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        with fragfs.open(self.folder, "rw", f"overlay={folder}") as checkpoint:
            state = checkpoint["float16"].fp16
            interrupted = unittest.mock.patch("os.fsync", side_effect=KeyboardInterrupt)
            closed = unittest.mock.patch("os.close", side_effect=close)
            change = fragfs.reader._StateChange(state, [state._patch(slice(None), 7)])
            with interrupted, closed, self.assertRaises(KeyboardInterrupt):
                change.commit()
            self.assertEqual(state.numpy().tolist(), [1, -2, 0.5])

    def test_bytes_and_rows(self) -> None:
        state = self.checkpoint["float16"].fp16
        self.assertEqual(state.bytes(state.nbytes), b"")
        with self.assertRaisesRegex(ValueError, f"from 99 on are not within its {state.nbytes}"):
            state.bytes(99)
        with self.assertRaises(EOFError):
            state.bytes(0, state.nbytes + 1)

    def test_it_has_no_generation(self) -> None:
        with self.assertRaisesRegex(FileNotFoundError, "a checkpoint has no generation"):
            self.checkpoint["float16"].fp16.generation

    def test_a_forked_child_leaves_the_mount(self) -> None:
        with fragfs.open(self.folder) as checkpoint:
            child = os.fork()
            if not child:
                try:
                    checkpoint.close()
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            self.assertEqual(len(checkpoint), len(self.DTYPES))

    def test_one_that_nobody_closes_ends_with_the_interpreter(self) -> None:
        script = ("import fragfs, os, sys\nat = fragfs.open(sys.argv[1])\nprint(at.path, flush=True)\n"
                  "if os.fork() == 0:\n    sys.exit()\nos.wait()\nassert len(at) == 4\nsys.exit(3)")
        ended = subprocess.run([sys.executable, "-c", script, self.folder], stdout=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(ended.returncode, 3)
        self.assertFalse(os.path.exists(ended.stdout.strip()))

    def test_it_ends_with_a_process_that_a_signal_ends(self) -> None:
        script = "import fragfs, signal, sys\nprint(fragfs.open(sys.argv[1]).path, flush=True)\nsignal.pause()"
        for number in (signal.SIGTERM, signal.SIGKILL):
            with subprocess.Popen([sys.executable, "-c", script, self.folder], stdout=subprocess.PIPE, text=True) as reader:
                folder = reader.stdout.readline().strip()
                self.assertTrue(os.path.exists(os.path.join(folder, ".frag", "version")))
                reader.send_signal(number)
            end = time.monotonic() + 60
            while os.path.exists(folder):
                self.assertLess(time.monotonic(), end, f"{folder} outlives its process by a minute")
                time.sleep(0.05)


@unittest.skipUnless(SOURCE, "FRAG_SOURCE names no job")
class Reader(unittest.TestCase):
    def setUp(self) -> None:
        self.job = fragfs.open(SOURCE, "rw")
        self.addCleanup(self.job.close)
        self.weight = self.job["layers.1.weight"]

    def test_what_a_parameter_is(self) -> None:
        self.assertIn("head.bias", list(self.job))
        self.assertEqual(len(self.weight.shape), 2)
        self.assertEqual(self.weight.dtype, "bfloat16")
        self.assertLessEqual({"bf16", "exp_avg", "exp_avg_sq", "fp32"}, set(self.weight.states))
        self.assertEqual(self.weight.fp32.dtype, "float32")
        self.assertEqual(self.weight.fp32.nbytes, 4 * self.weight.shape[0] * self.weight.shape[1])
        self.assertEqual({row["state"] for row in self.weight.fragments} & {"fp32"}, {"fp32"})
        self.assertIn("lr", self.job.groups[self.weight.group])
        self.assertGreater(self.job.step, 0)
        for name, in_words in (("no.such", "no parameter"), ("layers.1.weight", "no_such")):
            with self.assertRaisesRegex(KeyError, in_words):
                self.job[name]["no_such"]
        with self.assertRaises(AttributeError):
            self.weight.no_such
        self.assertNotIn("stats", self.weight)
        with self.assertRaises(AttributeError):
            self.weight.fp32 = 0  # which would change an attribute of this object, and no element

    def test_what_is_in_a_mapping(self) -> None:
        """What iterating gives, and nothing else, whatever it is that is asked for."""
        for mapping in (self.job, self.weight, self.job.groups[0]):
            names = list(mapping)
            self.assertTrue(all(name in mapping for name in names))
            for name in ("", ".", "..", "kind", "shape", "stats", "fp32.npy", "no_such", "../0/lr", "a\0b", 3, None):
                with self.subTest(mapping=mapping, name=name):
                    self.assertNotIn(name, names)
                    self.assertNotIn(name, mapping)
                    with self.assertRaises(KeyError):
                        mapping[name]

    def test_ranged_bytes_are_those_of_the_whole(self) -> None:
        with self.job.freeze(20):
            whole = self.weight.fp32.bytes()
            self.assertEqual(self.weight.fp32.bytes(12, 400), whole[12:412])
            self.assertEqual(self.weight.fp32.bytes(len(whole) - 4), whole[-4:])

    def test_hyper_parameters_and_a_mount_that_is_there(self) -> None:
        group = self.job.groups[0]
        group["weight_decay"] = 0.015625
        self.assertEqual(group["weight_decay"], 0.015625)
        again = fragfs.open(self.job.path)
        self.assertEqual(list(again), list(self.job))
        again.close()
        self.assertTrue(os.path.exists(os.path.join(self.job.path, "step")))
        with self.assertRaises(ValueError):
            fragfs.open(self.job.path, "rw")

    def test_events(self) -> None:
        events = self.job.events()
        kinds = set()
        while "step" not in kinds:
            kinds.add(next(events)["event"])
        events.close()

    @unittest.skipUnless(NUMPY, "numpy is not installed")
    def test_slices_are_those_of_numpy(self) -> None:
        state = self.weight.fp32
        with self.job.freeze(20):
            whole = state.numpy()
            self.assertEqual(whole.tobytes(), bytes(state.bytes()))
            for key in (3, -1, slice(3, 9), slice(90, 3, -7), slice(None, None, -1), (slice(2, 4), 5), (Ellipsis, 0),
                        (5, 6), slice(5, 5), (slice(None), slice(1, 3)), [1, 5], None, whole > 0):
                with self.subTest(key=str(key)):
                    self.assertEqual(state[key].tobytes(), whole[key].tobytes())
            with self.assertRaises(IndexError):
                state[len(whole)]

    @unittest.skipUnless(NUMPY, "numpy is not installed")
    def test_all_masters_out_of_one_file_are_those_of_each(self) -> None:
        with self.job.freeze(60):
            want = {name: p.fp32.numpy().tobytes() for name, p in self.job.items()}
            for limits in ({"_AT_ONCE": 0}, {"_PIECE": 1000}, {"_PIECE_PARTS": 3}, {}):
                with self.subTest(limits), unittest.mock.patch.multiple(fragfs.reader, **{"_AT_ONCE": 1 << 30, **limits}):
                    self.assertEqual(self.job._masters() is None, "_AT_ONCE" in limits)
                    got = self.job.numpy("fp32")
                    self.assertEqual({name: array.tobytes() for name, array in got.items()}, want)
                    self.assertEqual({name: array.shape for name, array in got.items()},
                                     {name: p.shape for name, p in self.job.items()})
                    self.assertEqual((list(got), {array.flags.writeable for array in got.values()}), (list(want), {True}))

    @unittest.skipUnless(NUMPY, "numpy is not installed")
    def test_what_not_all_parameters_have(self) -> None:
        self.assertEqual(self.job.numpy("no_such"), {})
        for key in ("shape", "", "..", "stats"):
            self.assertEqual(self.job.numpy(key), {}, key)
        with self.assertRaises(KeyError):
            self.job.numpy("no_such", ["head.bias"])
        with self.assertRaisesRegex(KeyError, "head.bias has no ;"):
            self.job.numpy("", ["head.bias"])

    @unittest.skipUnless(NUMPY, "numpy is not installed")
    def test_an_edit_is_what_is_read_next(self) -> None:
        for group in self.job.groups:
            group["lr"] = 0.0
        state = self.weight.fp32
        before = state.numpy()
        state[7, 3:5] = [1, 2]
        after = state.numpy()
        before[7, 3:5] = [1, 2]
        self.assertEqual(after.tobytes(), before.tobytes())
        self.assertEqual(array.array("H", self.weight.bf16.bytes())[7 * after.shape[1] + 3], 0x3F80)

    @unittest.skipUnless(NUMPY, "numpy is not installed")
    def test_an_edit_has_the_elements_that_are_asked_for(self) -> None:
        """All of them, changed or not, and no others: the job trains on, and would lose what it did."""
        state = self.weight.fp32
        events = self.job.events()
        state[:, 3] = state[:, 3]
        edit = next(event for event in events if event["event"] == "edit")
        self.assertEqual(edit["bytes"], state.shape[0] * 4)
        events.close()

    @unittest.skipUnless(NUMPY, "numpy is not installed")
    def test_several_edits_go_in_at_one_boundary(self) -> None:
        events = self.job.events()
        with self.job.edit() as e:
            for group in e.groups:
                group["lr"] = 0.0
            weight = e["layers.1.weight"]
            weight.fp32[7, 3:5] = [1, 2]
            weight.fp32[0] = 3
            weight.exp_avg[7] = 0
            e["head.bias"].exp_avg_sq[:] = 0
            self.assertNotEqual(self.weight.fp32[0, 0], 3)
        edits: list = []
        while len(edits) < 3 + len(self.job.groups):
            event = next(events)
            edits += [event] * (event["event"] == "edit")
        events.close()
        self.assertEqual({edit["outcome"] for edit in edits}, {"committed"})
        self.assertEqual(len({edit["boundary"] for edit in edits}), 1)
        self.assertEqual(self.weight.fp32[7, 3:5].tolist(), [1, 2])
        self.assertTrue((self.weight.fp32[0] == 3).all())
        self.assertIn("exp_avg_sq", {edit["state"] for edit in edits})

    def test_for_how_long_a_job_may_be_frozen(self) -> None:
        for seconds in (0, -1, 0.5, 86401, float("nan")):
            with self.assertRaisesRegex(ValueError, "1 to 86400"), self.job.freeze(seconds):
                self.fail(f"frozen for {seconds} s")
        with self.job.freeze(60.5):
            self.assertEqual(self.job.phase, "frozen")

    @unittest.skipUnless(NUMPY, "numpy is not installed")
    def test_several_edits_of_a_job_that_stands(self) -> None:
        with self.job.freeze(60):
            bias, scale = self.job["head.bias"].fp32, self.job["head.scale"].fp32
            wanted = [2 * bias.numpy(), 2 * scale.numpy()]
            with self.job.edit() as e:
                e["head.bias"].fp32[...], e["head.scale"].fp32[...] = wanted
            self.assertEqual([bias.numpy().tolist(), scale.numpy().tolist()], [array.tolist() for array in wanted])

    @unittest.skipUnless(NUMPY, "numpy is not installed")
    def test_an_edit_that_is_refused_leaves_none(self) -> None:
        for group in self.job.groups:
            group["lr"] = 0.0
        before = self.job.numpy("fp32")
        with self.assertRaises(ZeroDivisionError), self.job.edit() as e:
            e["layers.1.weight"].fp32[:] = 1
            1 / 0
        with self.assertRaises(OSError), self.job.edit() as e:
            e["layers.1.weight"].fp32[:] = 1
            e["head.bias"].fp32[:] = 1
            e.groups[0]["lr"] = float("nan")
        after = self.job.numpy("fp32")
        self.assertEqual(list(before), list(self.job))
        for name in before:
            self.assertEqual(after[name].tobytes(), before[name].tobytes(), name)


class _Change:
    """A change of an edit that goes in, is refused, or is interrupted behind its commit; log has what was committed."""

    def __init__(self, path: str, log: list, fails: type | None = None, cannot_read: bool = False) -> None:
        self.path, self.log, self.fails, self.cannot_read = path, log, fails, cannot_read

    def inverse(self) -> "_Change":
        if self.cannot_read:
            raise FileNotFoundError(self.path)
        return _Change("old " + self.path, self.log, OSError if self.path == "stuck" else None)

    def commit(self) -> None:
        if self.fails is not OSError:
            self.log.append(self.path)
        if self.fails:
            raise self.fails(self.path)


class Edits(unittest.TestCase):
    """What is left of several changes of which one goes wrong."""

    def commit(self, error: type, *changes: dict) -> list:
        log: list = []
        edit = Edit(None)
        edit._changes = {str(i): _Change(log=log, **change) for i, change in enumerate(changes)}
        with self.assertRaises(error) as raised:
            edit._commit()
        self.text = str(raised.exception)
        return log

    def test_all_are_put_back_where_one_is_refused(self) -> None:
        log = self.commit(OSError, {"path": "a"}, {"path": "b"}, {"path": "c", "fails": OSError})
        self.assertEqual(log, ["a", "b", "old a", "old b"])

    def test_one_that_cannot_be_read_leaves_the_others_out(self) -> None:
        self.assertEqual(self.commit(OSError, {"path": "a"}, {"path": "b", "cannot_read": True}), [])

    def test_one_that_is_interrupted_is_put_back(self) -> None:
        log = self.commit(KeyboardInterrupt, {"path": "a"}, {"path": "b", "fails": KeyboardInterrupt}, {"path": "c"})
        self.assertEqual(log, ["a", "b", "old a", "old b"])

    def test_the_only_one_is_left_to_the_mount(self) -> None:
        self.assertEqual(self.commit(KeyboardInterrupt, {"path": "a", "fails": KeyboardInterrupt}), ["a"])

    def test_one_that_cannot_be_put_back_is_named(self) -> None:
        log = self.commit(OSError, {"path": "stuck"}, {"path": "b"}, {"path": "c", "fails": OSError})
        self.assertEqual(log, ["stuck", "b", "old b"])
        self.assertIn("not put back: old stuck", self.text)


class OwnMount(unittest.TestCase):
    """The training thread uses a mount of its own job."""

    def setUp(self) -> None:
        try:
            self.job = _job.Job(rank=0, world=1, job=f"own-mount-{os.getpid()}")
        except OSError as e:
            self.skipTest(str(e))
        self.addCleanup(self.job.close)
        group = self.job.group([self.job.param("w", [4], "bfloat16")], stage=1)
        for key in (b"fp32", b"grad"):
            self.job._call("frag_state_alloc", group, 0, key, _libfrag.FRAG_F32, ctypes.byref(ctypes.c_void_p()))
        self.options = {"lr": 0.5}
        self.when_got = self.when_put = lambda: None

        def put(_: int, value: float) -> None:
            self.options["lr"] = value
            self.when_put()

        self.job.hypers([(group, "lr")], lambda: [self.when_got() or self.options["lr"]], put)
        self.job.ready()
        self.job.wait_ready(60)
        self.mount = fragfs.open(self.job.address, "rw")
        self.addCleanup(self.mount.close)

    def test_a_hyper_parameter_by_functions(self) -> None:
        group = self.mount.groups[0]
        self.options["lr"] = 0.25
        self.job.safe_point()
        self.assertEqual(group["lr"], 0.25)
        writer = threading.Thread(target=group.__setitem__, args=("lr", 0.125))
        writer.start()
        while writer.is_alive():
            self.job.safe_point()
            time.sleep(0.001)
        self.assertEqual(self.options, {"lr": 0.125})

    def finalize(self) -> None:
        """As weak references may at any line: forgets a state, and closes the job, as where that goes wrong."""
        self.job.drop(0, 0, "fp32")
        self.job.close()

    def test_a_finalizer_may_run_while_a_hyper_parameter_is_got(self) -> None:
        self.when_got = self.finalize
        self.job.safe_point()
        self.assertFalse(self.job.is_open or self.job._frag)

    def test_a_finalizer_may_run_while_a_hyper_parameter_is_put(self) -> None:
        self.when_put = self.finalize
        group = self.mount.groups[0]

        def write() -> None:
            with contextlib.suppress(OSError):  # the job has closed
                group["lr"] = 0.25

        writer = threading.Thread(target=write)
        writer.start()
        end = time.monotonic() + 60
        while self.job.is_open and time.monotonic() < end:
            self.job.safe_point()
            time.sleep(0.001)
        writer.join(60)
        self.assertFalse(self.job.is_open or self.job._frag)
        self.assertEqual(self.options, {"lr": 0.25})

    def test_what_waits_for_itself_raises(self) -> None:
        with self.assertRaises(OSError) as raised:
            self.mount.groups[0]["lr"] = 0.25
        self.assertEqual(raised.exception.errno, errno.EDEADLK)
        with self.assertRaises(OSError) as raised:
            self.mount["w"].grad.bytes()
        self.assertEqual(raised.exception.errno, errno.EDEADLK)
        self.assertEqual(self.mount["w"].fp32.bytes(), bytes(16))
        self.job.grads_valid(1)
        self.assertEqual(self.mount["w"].grad.bytes(), bytes(16))


if __name__ == "__main__":
    unittest.main()
