# SPDX-License-Identifier: Apache-2.0
"""fragfs/_libfrag.py says what engine/frag.h says: sizes, offsets, constants, and each function's types."""

import ctypes
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from ctypes import POINTER
from pathlib import Path

import fragfs
from fragfs import _dtypes, _job, _libfrag
from fragfs.__main__ import USAGE

HEADER = Path(__file__).resolve().parents[2] / "engine" / "frag.h"
SCALARS = {"int": ctypes.c_int, "unsigned": ctypes.c_uint, "float": ctypes.c_float, "double": ctypes.c_double,
           "size_t": ctypes.c_size_t, "uint16_t": ctypes.c_uint16, "uint32_t": ctypes.c_uint32,
           "uint64_t": ctypes.c_uint64, "int64_t": ctypes.c_int64}


def header_text() -> str:
    return " ".join(re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.S).split())


def type_of(words: str) -> object:
    """The ctypes type of a parameter or result: `const uint64_t *shape`, `int`, `void **memory` ..."""
    words = words.replace("const ", "").replace(" const", "")
    if "(*keys)" in words:
        return ctypes.c_void_p
    stars, base = words.count("*"), re.sub(r"\*.*", "", words).strip()
    if base.startswith("enum "):
        base = "int"
    name = base.removeprefix("struct ").split(" ")[0]
    if name in ("frag", "frag_sweep") and base.startswith("struct "):
        return [None, ctypes.c_void_p, POINTER(ctypes.c_void_p)][stars]
    if base.startswith("struct "):
        return POINTER(getattr(_libfrag, name))
    if name in ("frag_grad_update", "frag_frozen", "frag_hyper_get", "frag_hyper_set", "frag_log_line"):
        return getattr(_libfrag, name)
    if name == "void":
        return [None, ctypes.c_void_p, POINTER(ctypes.c_void_p)][stars]
    if name == "char":
        return ctypes.c_char_p
    return POINTER(SCALARS[name]) if stars else SCALARS[name]


class Binding(unittest.TestCase):
    def test_every_function_with_its_types(self) -> None:
        declared = re.findall(r"FRAG_API (?!__)([^;()]*?)(\w+)\(((?:[^()]|\([^()]*\))*(?:\([^()]*\)[^()]*)*)\);",
                              header_text())
        self.assertEqual({name for _, name, _ in declared}, set(_libfrag.FUNCTIONS))
        for result, name, arguments in declared:
            parts = [] if arguments == "void" else re.split(r", (?![^(]*\))", arguments)
            with self.subTest(name):
                self.assertEqual(_libfrag.FUNCTIONS[name], (type_of(result), [type_of(p) for p in parts]))

    def test_every_constant(self) -> None:
        names = set(re.findall(r"\b(FRAG_[A-Z0-9_]+)(?= =|,| })", header_text())) - {"FRAG_API", "FRAG_H"}
        self.assertEqual(names, {name for name in vars(_libfrag) if name.startswith("FRAG_")})

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_sizes_offsets_and_values(self) -> None:
        structs = [s for s in vars(_libfrag).values()
                   if isinstance(s, type) and issubclass(s, ctypes.Structure) and hasattr(s, "_fields_")]
        want, lines = [], []
        for struct in structs:
            tag = f"struct {struct.__name__}"
            want.append(ctypes.sizeof(struct))
            lines.append(f"sizeof({tag})")
            for field, *_ in struct._fields_:
                want.append(getattr(struct, field).offset)
                lines.append(f"offsetof({tag}, {field})")
                want.append(getattr(struct, field).size)
                lines.append(f"sizeof((({tag} *)0)->{field})")
        for name, value in vars(_libfrag).items():
            if name.startswith("FRAG_"):
                want.append(value)
                lines.append(name)
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "facts.c")
            source.write_text('#include <stdio.h>\n#include "%s"\nint main(void) {\n%s}\n' % (
                HEADER, "".join(f'printf("%lld\\n", (long long)({line}));\n' for line in lines)))
            subprocess.run(["cc", "-o", f"{folder}/facts", str(source)], check=True)
            got = subprocess.run([f"{folder}/facts"], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(dict(zip(lines, map(int, got))), dict(zip(lines, want)))
        for struct in structs:
            self.assertEqual([field for field, *_ in struct._fields_], self.fields_of(struct.__name__))

    @staticmethod
    def fields_of(tag: str) -> list[str]:
        body = re.search(r"struct %s \{ (.*?) \};" % tag, header_text()).group(1)
        return [re.sub(r".*\(\*(\w+)\).*", r"\1", name).split()[-1].lstrip("*")
                for line in body.split(";") if line.strip() for name in re.split(r", (?![^(]*\))", line.strip())]


class Doctor(unittest.TestCase):
    def test_says_what_is_missing(self) -> None:
        done = subprocess.run([sys.executable, "-m", "fragfs", "doctor"], capture_output=True, text=True,
                              env={**os.environ, "FRAG_LIBRARY": "/nonexistent"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("missing libfrag: libfrag.so was not found at /nonexistent", done.stdout)
        self.assertRegex(done.stdout, "(ok     |missing) attach PID: ")

    def test_says_that_its_output_is_full(self) -> None:
        with open("/dev/full", "w") as full:
            done = subprocess.run([sys.executable, "-m", "fragfs", "doctor"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (1, "fragfs: standard output: No space left on device\n"))


class Commands(unittest.TestCase):
    def test_wrong_words_are_said_in_a_line(self) -> None:
        for words, line in ((("run", "/nowhere.py"), "fragfs: /nowhere.py: No such file or directory\n"),
                            (("run", "--help"), USAGE + "\n"),
                            (("attach", "1", "--timeout", "nan"), "nan: more than 0 and at most 86400 seconds are expected\n"),
                            (("attach", "1", "--ahead", "-3"), "-3: more than 0 and at most 86400 seconds are expected\n")):
            with self.subTest(words):
                done = subprocess.run([sys.executable, "-m", "fragfs", *words], capture_output=True, text=True)
                self.assertEqual(done.returncode, 2)
                self.assertTrue(done.stderr.endswith(line), done.stderr)


class Package(unittest.TestCase):
    def test_is_imported_without_torch_numpy_or_libfrag(self) -> None:
        script = "import fragfs, sys; print(*{'torch', 'numpy', 'deepspeed', 'ctypes'} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                              env={**os.environ, "FRAG_LIBRARY": "/nonexistent"})
        self.assertEqual(done.stdout.split(), [])


class Library(unittest.TestCase):
    def setUp(self) -> None:
        try:
            self.library = _libfrag.load()
        except OSError as e:
            self.skipTest(str(e))

    def test_dtypes(self) -> None:
        for name, dtype in _dtypes.DTYPES.items():
            self.assertEqual(self.library.frag_dtype_name(dtype.number), name.encode())
            self.assertEqual(self.library.frag_dtype_size(dtype.number), dtype.itemsize)
        self.assertEqual(self.library.frag_dtype_size(len(_dtypes.DTYPES) + 1), 0)

    def test_an_exception_has_the_reason(self) -> None:
        for config, reason in (({"rank": "x", "world": 1}, "x"), ({"rank": 3, "world": 2}, "3")):
            with self.subTest(config), self.assertRaises(OSError) as raised:
                _job.Job(**config)
            self.assertRegex(raised.exception.strerror, f"frag_open: .*{reason}")

    def test_lines_go_to_a_logger(self) -> None:
        with self.assertLogs("job", "WARNING") as logs:
            fragfs.log_to(logging.getLogger("job"))
            with self.assertRaises(OSError):
                _job.Job(rank="x", world=1)
            fragfs.log_to(None)
        self.assertEqual(len(logs.output), 1)
        self.assertRegex(logs.output[0], "^WARNING:job:.*rank=x is not a number")

    def test_a_null_job_is_einval(self) -> None:
        self.assertEqual(self.library.frag_step_begin(None), -22)


if __name__ == "__main__":
    unittest.main()
