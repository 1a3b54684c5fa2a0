#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each header compiles alone, frag.h also as strict C11 and as C++; each has a guard of its name.
set -eu
cd "${top_srcdir:-.}"
bad=0
fuse=$(pkg-config --cflags fuse3)
for h in $(find engine fs mount-helpers tests docs -name '*.h' | sort); do
	case $h in docs/*) frag=-Iengine ;; *) frag= ;; esac # <frag.h>, as it is installed
	guard=$(basename "$h" | tr 'a-z.-' 'A-Z__')
	grep -q "^#ifndef \([A-Z_]*_\)\?$guard\$" "$h" || { echo "$h: no guard ..._$guard"; bad=1; }
	printf '#include <config.h>\n#include "%s"\n' "$h" |
		$CC -std=gnu17 -D_GNU_SOURCE -I"$top_builddir" -I. $frag $fuse ${CUDA_CPPFLAGS:-} ${UCX_CFLAGS:-} -Wall -Wno-unused-function \
			-Werror -x c -fsyntax-only - || { echo "$h: does not compile alone"; bad=1; }
done
for language in 'c -std=c11' 'c++ -std=c++14'; do
	case $language in c++*) $CC -x c++ -fsyntax-only /dev/null 2>/dev/null || continue ;; esac
	echo '#include "engine/frag.h"' |
		$CC -x $language -I. -Wall -Wextra -pedantic -Werror -fsyntax-only - ||
		{ echo "frag.h: not $language"; bad=1; }
done
exit $bad
