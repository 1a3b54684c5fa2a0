#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes ./configure from a clone.  Run from anywhere.
exec autoreconf --install "$(dirname "$0")"
