#!/bin/sh
# Makes ./configure from a clone.  Run from anywhere.
exec autoreconf --install "$(dirname "$0")"
