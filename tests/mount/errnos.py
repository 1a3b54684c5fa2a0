# SPDX-License-Identifier: Apache-2.0
"""For the Python in tests of this folder, by PYTHONPATH."""


def fails(what, *args):
    """The errno of a call; 0: it did not fail."""
    try:
        what(*args)
    except OSError as e:
        return e.errno
    return 0
