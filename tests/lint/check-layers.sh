#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every #include "folder/file.h" goes down in layers.txt; between folders, through a door.  No module stands there twice, as
# after a merge of two branches it might.
set -eu
cd "${top_srcdir:-.}"
grep -rn --include='*.[ch]' '^#include "[a-z-]*/' engine fs mount-helpers |
awk -F'[:"]' -v rules="${LAYERS:-tests/lint/layers.txt}" '
	function module(path) { sub(/\.[ch]$/, "", path); return path }
	function folder(path) { sub(/\/.*/, "", path); return path }
	# The longest name that has a place: the file, its module, its module less "-x", ...
	function place(path) {
		if (path in at) return path
		for (path = module(path); !(path in at); )
			if (!sub(/-[a-z0-9]+$/, "", path)) return ""
		return path
	}
	BEGIN {
		while ((getline line < rules) > 0) {
			n = split(line, word, " "); row++
			if (line ~ /^#/) continue
			for (i = 1; i <= n; i++)
				if (word[1] == "door") door[word[i]] = 1
				else if (word[i] in at) {
					print rules ":" row ": " word[i] " has a place already, in line " at[word[i]]; bad = 1
				} else at[word[i]] = row
		}
	}
	{
		from = $1; to = $4; why = ""
		if (module(from) == module(to)) next
		if (place(from) == "") why = "has no place in layers.txt for " from
		else if (place(to) == "") why = "has no place in layers.txt"
		else if (place(from) == place(to)) next
		else if (folder(from) != folder(to) && !(to in door)) why = "is not a door of " folder(to)
		else if (at[place(to)] >= at[place(from)]) why = "is not below " from
		else next
		print from ":" $2 ": " to " " why; bad = 1
	}
	END { exit bad }'
