#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The C files are formatted as by `make format`.
set -eu
cd "${top_srcdir:-.}"
# Versions of clang-format format differently by the same .clang-format.
for format in clang-format-14 clang-format; do
	case $("$format" --version 2>/dev/null) in *' 14.'*) break ;; esac
	format=
done
[ -n "$format" ] || { echo "clang-format 14 is not here"; exit 77; }
find engine fs mount-helpers tests docs -name '*.[ch]' | sort |
	xargs "$format" --dry-run -Werror --ferror-limit=1
