# SPDX-License-Identifier: Apache-2.0
"""The build backend: setuptools, and libfrag.so in the wheel where it is built.

The library is FRAG_LIBRARY, or ../build/.libs/libfrag.so, which ./quickstart makes.  Without one the
wheel has Python alone, and looks for the library where it is installed (fragfs/_libfrag.py).
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403: the hooks that are not below

HERE = Path(__file__).resolve().parent


def _library() -> Path | None:
    path = Path(os.environ.get("FRAG_LIBRARY") or HERE.parent / "build/.libs/libfrag.so")
    return path if path.exists() else None


def build_wheel(wheel_directory: str, config_settings: dict | None = None, metadata_directory: str | None = None
                ) -> str:
    library, inside = _library(), HERE / "fragfs" / "lib"
    shutil.rmtree(HERE / "build", ignore_errors=True)
    if not library:
        print("fragfs: no libfrag.so is built: the wheel looks for an installed one", file=sys.stderr)
        return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    inside.mkdir(exist_ok=True)
    try:
        shutil.copy(library, inside / "libfrag.so")  # whatever name FRAG_LIBRARY has, such as libfrag.so.0
        options = {**(config_settings or {}), "--build-option": ["--plat-name", sysconfig.get_platform()]}
        return build_meta.build_wheel(wheel_directory, options, metadata_directory)
    finally:
        shutil.rmtree(inside)
