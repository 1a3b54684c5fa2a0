#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every source file names its licence in its first lines.
set -eu
cd "${top_srcdir:-.}"
bad=0
for f in autogen.sh configure.ac Makefile.am m4/frag.m4 quickstart mount-helpers/completion/* \
	$(find engine fs mount-helpers tests docs python \
		-name '*.[ch]' -o -name '*.sh' -o -name '*.am' -o -name '*.py'); do
	head -n 3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
		{ echo "$f: no SPDX line"; bad=1; }
done
exit $bad
