#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fragctl's manual page agrees with the table of commands: synopsis, columns, exit statuses; check-docs.sh compares
# options. Completion takes commands, options and columns from the program, in bash and in zsh.
set -eu
cd "${top_srcdir:-.}"
fragctl=$top_builddir/fragctl
page=docs/fragctl.1
bad=0

"$fragctl" --commands >"$TMPDIR/table"
command_names=$(awk -F '\t' '$1 == "command" { print $2 }' "$TMPDIR/table")

# The synopsis as --help prints it.
"$fragctl" --help | sed -n 's/^\(usage:\|      \) fragctl //p' >"$TMPDIR/help"
sed -n '/^\.Sh SYNOPSIS/,/^\.Sh DESCRIPTION/p' "$page" | awk '
	function words(from,   i, text, close_last, word) {
		text = ""
		for (i = from; i <= NF; i++) {
			if ($i == "Op") { text = text " ["; close_last = close_last "]"; continue }
			if ($i == "Ar" || $i == "Cm") continue
			word = $i
			if ($i == "Fl") word = "-" $(++i)
			text = text (text ~ /\[$/ || text == "" ? "" : " ") word
		}
		return text close_last
	}
	/^\.Nm/ { if (line != "") print line; line = "" }
	/^\.Cm/ { line = $2 }
	/^\.(Op|Ar)/ { sub(/^\./, ""); $0 = $0; part = words(1); sub(/^ /, "", part)
		line = line (part == "..." ? "" : " ") part }
	END { print line }' >"$TMPDIR/page"
diff "$TMPDIR/help" "$TMPDIR/page" >"$TMPDIR/diff" || { echo "fragctl --help, $page:"; cat "$TMPDIR/diff"; bad=1; }

for name in $command_names; do
	grep -q "^option	$name	-J	" "$TMPDIR/table" || { echo "$name has no --json"; bad=1; }
	grep -q "^\.Nm Cm $name\b" "$page" || { echo "$page does not describe $name"; bad=1; }
	# The page's columns of -o, and the command's own exit status.
	columns=$(awk -F '\t' -v name="$name" '$1 == "column" && $2 == name { printf "%s%s", comma, $3; comma = " , " }' \
		"$TMPDIR/table")
	[ -z "$columns" ] || [ "$(sed -n "s/^\.It Cm $name Li //p" "$page")" = "$columns" ] ||
		{ echo "$page: columns of $name, not '.It Cm $name Li $columns'"; bad=1; }
	! grep -q "^found	$name	" "$TMPDIR/table" ||
		sed -n '/^\.Sh EXIT STATUS/,/^\.Sh EX/p' "$page" | grep -q "^\.\(Nm \)\?Cm $name\b\|^\.Nm Cm $name\b" ||
		{ echo "$page: EXIT STATUS does not name $name"; bad=1; }
done

# complete_of PROGRAM WORD...: prints what bash offers for the last word.
complete_of() {
	PATH=$top_builddir:$PATH bash -c '
		. mount-helpers/completion/$1
		[ -z "${MOUNT:-}" ] || _fragctl_mounts() { echo "$MOUNT"; }
		[ -z "${JOBS:-}" ] || fragctl() { printf "%s\n" "$JOBS"; }
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
		_$1 $1
		printf "%s\n" "${COMPREPLY[@]}"' bash "$@" | sed 's/ *$//' | sort
}
complete_words() {
	complete_of fragctl "$@"
}
if command -v bash >/dev/null; then
	[ "$(complete_words '')" = "$(echo "$command_names" | sort)" ] || { echo "bash: commands: $(complete_words '')"; bad=1; }
	for name in $command_names; do
		want=$( (awk -F '\t' -v name="$name" '$1 == "option" && $2 == name { print $4 }' "$TMPDIR/table"; echo --help) | sort)
		[ "$(complete_words "$name" --)" = "$want" ] || { echo "bash: options of $name: $(complete_words "$name" --)"; bad=1; }
	done
	# Completion expands nothing in a parameter's name.
	mkdir -p "$TMPDIR/m/params/\$(echo ran)" "$TMPDIR/m/params/it's" "$TMPDIR/m/params/b c"
	names=$(MOUNT=$TMPDIR/m complete_words get '')
	[ "$names" = "$(printf '%s\n' '\$\(echo\ ran\)' 'b\ c' "it\\'s" | sort)" ] ||
		{ echo "bash: parameters: $names"; bad=1; }
	mkdir -p "$TMPDIR/n/params/of-n"
	for option in -j --job; do
		names=$(MOUNT=$TMPDIR/m complete_words get $option "$TMPDIR/n" '')
		[ "$names" = of-n ] || { echo "bash: parameters of $option: $names"; bad=1; }
	done
	names=$(JOBS="a \$(touch '$TMPDIR/ran') b	127.0.0.1:9" complete_of fragfs a)
	[ "$names" = "a\\ \\\$\\(touch\\ \\'$TMPDIR/ran\\'\\)\\ b" ] && [ ! -e "$TMPDIR/ran" ] || { echo "bash: jobs: $names"; bad=1; }
	complete_words jobs -o job,wo | grep -qx job,world || { echo "bash: columns of jobs"; bad=1; }
	# Folders alone, or files too, as the command's words are.
	: >"$TMPDIR/m/file"
	for name in overlay discard commit; do
		[ "$(complete_words $name "$TMPDIR/m/")" = "$TMPDIR/m/params" ] ||
			{ echo "bash: folders of $name: $(complete_words $name "$TMPDIR/m/")"; bad=1; }
	done
	[ "$(complete_words key "$TMPDIR/m/")" = "$TMPDIR/m/file
$TMPDIR/m/params" ] || { echo "bash: files of key: $(complete_words key "$TMPDIR/m/")"; bad=1; }
fi
# zsh_offers LINE WORD...: fails unless zsh has offered all words for the last one of LINE.
zsh_offers() {
	line=$1
	shift
	for word in "$@"; do
		grep -qxF -- "$line	$word" "$TMPDIR/offers" ||
			{ echo "zsh: no $word for $line: $(grep -F -- "$line	" "$TMPDIR/offers")"; bad=1; }
	done
}
if command -v zsh >/dev/null; then
	# Writes the words that completion adds to a file, and then makes another one.
	cat >"$TMPDIR/zshrc" <<'END'
path=($TOP $path) fpath=($PWD/mount-helpers/completion $fpath)
autoload -Uz compinit; compinit -D -u
compadd() {
	local -a added
	[[ "${@[1,(i)(-|--)]}" == *-[OAD]\ * ]] || { builtin compadd -O added "$@"; print -rl -- "$BUFFER	"$^added >>$TMPDIR/offers; }
	builtin compadd "$@"
}
completed() { : >$TMPDIR/completed }
list() { comppostfuncs=(completed); zle list-choices }
zle -N list; bindkey '^I' list
PS1=; print REA""DY
END
	# Completes each of its arguments in one shell in a terminal.
	cat >"$TMPDIR/complete.zsh" <<'END'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'source $TMPDIR/zshrc'
while zpty -r shell line && [[ $line != *READY$'\r'* ]]; do :; done
for wanted in "$@"; do
	rm -f $TMPDIR/completed
	zpty -w -n shell $'\C-U'$wanted$'\t'
	repeat 1000; do
		[[ ! -e $TMPDIR/completed ]] || break
		sleep 0.05
		! zpty -r -t shell line || :
	done
	[[ -e $TMPDIR/completed ]] || exit 1
done
END
	mkdir -p "$TMPDIR/a folder/params/of-a-folder"
	: >"$TMPDIR/offers"
	set -- 'fragctl '
	for name in $command_names; do
		set -- "$@" "fragctl $name --"
	done
	TOP=$top_builddir timeout 100 zsh -f "$TMPDIR/complete.zsh" "$@" "fragctl get -j $TMPDIR/m b" "fragctl get -j $TMPDIR/m " \
		"fragctl get -j $TMPDIR/a\\ folder " 'fragctl jobs -o job,' "fragctl key $TMPDIR/m/" "fragctl overlay $TMPDIR/m/p" \
		'fragctl freeze -- ech' || { echo "zsh: no completion"; bad=1; }
	zsh_offers 'fragctl ' $command_names
	for name in $command_names; do
		zsh_offers "fragctl $name --" $(awk -F '\t' -v name="$name" '$1 == "option" && $2 == name { print $4 }' "$TMPDIR/table")
	done
	zsh_offers "fragctl get -j $TMPDIR/m b" 'b c'
	zsh_offers "fragctl get -j $TMPDIR/m " 'b c' "it's" '$(echo ran)'
	zsh_offers "fragctl get -j $TMPDIR/a\\ folder " of-a-folder
	zsh_offers 'fragctl jobs -o job,' address world
	zsh_offers "fragctl key $TMPDIR/m/" file params
	zsh_offers "fragctl overlay $TMPDIR/m/p" params
	zsh_offers 'fragctl freeze -- ech' echo
else
	echo "no zsh: its completion is not tested"
fi
exit $bad
