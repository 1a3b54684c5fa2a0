# SPDX-License-Identifier: Apache-2.0
"""fragfs.open over a job of docs/examples/train that is running: FRAG_SOURCE is its HOST:PORT, FRAGFS the program."""

import array
import importlib.util
import os
import unittest

import fragfs
from fragfs.reader import _unescape

SOURCE = os.environ.get("FRAG_SOURCE")
NUMPY = importlib.util.find_spec("numpy")


class Names(unittest.TestCase):
    def test_escapes(self) -> None:
        for file, name in (("a%2Fb", "a/b"), ("%", ""), ("100%25", "100%"), ("w@tp=1", "w@tp=1"), ("%2E%2E", "..")):
            self.assertEqual(_unescape(file), name)

    def test_a_source_that_is_none_says_why(self) -> None:
        with self.assertRaisesRegex(OSError, "no-such-checkpoint"):
            fragfs.open("/no-such-checkpoint/of/mine")


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


if __name__ == "__main__":
    unittest.main()
