# SPDX-License-Identifier: Apache-2.0
"""What pip makes of python/: a wheel with libfrag.so in it, which needs no compiler, nor the tree it was built in."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from fragfs import _libfrag


@unittest.skipUnless(importlib.util.find_spec("pip") and importlib.util.find_spec("setuptools"), "no pip or no setuptools")
class Wheel(unittest.TestCase):
    def test_libfrag_is_in_a_wheel_and_found_there(self) -> None:
        try:
            library = _libfrag.find()
        except OSError as e:
            self.skipTest(str(e))
        pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
        with tempfile.TemporaryDirectory() as folder:
            source, installed = shutil.copytree(Path(__file__).parents[1], f"{folder}/python"), f"{folder}/installed"
            subprocess.run([*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", folder, source], check=True,
                           env={**os.environ, "FRAG_LIBRARY": shutil.copy(library, f"{folder}/libfrag.so.0")})
            wheel, = Path(folder).glob("*.whl")
            self.assertNotIn("none-any", wheel.name)
            subprocess.run([*pip, "install", "--no-deps", "--target", installed, str(wheel)], check=True)
            done = subprocess.run([sys.executable, "-c", "from fragfs import _libfrag; print(_libfrag.load()._name)"],
                                  capture_output=True, text=True, check=True, cwd=folder,
                                  env={**{name: value for name, value in os.environ.items() if name != "FRAG_LIBRARY"},
                                       "PYTHONPATH": installed})
            self.assertEqual(done.stdout.strip(), f"{installed}/fragfs/lib/libfrag.so")


if __name__ == "__main__":
    unittest.main()
