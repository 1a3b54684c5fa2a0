# SPDX-License-Identifier: Apache-2.0
# For tests of a job, mounted at $M, that freezes and goes on: . "$top_srcdir/tests/fail/frozen.sh".  $ranks is a list of
# the ranks' process ids.

is() {
	[ "$(cat "$M/phase")" = "$1" ]
}

trains() {
	! is frozen
}

# The job has ended more steps than $before.
later() {
	[ "$(cat "$M/step")" -gt "$before" ]
}

# goes_on WHAT: it is no longer frozen, and trains.
goes_on() {
	wait_until 60 trains || fail "$1: the job stays frozen"
	before=$(cat "$M/step")
	wait_until 60 later || fail "$1: no step after $before"
}

# The pid of rank $1.
rank() {
	# shellcheck disable=SC2086 # a list
	echo $ranks | cut -d' ' -f$(($1 + 1))
}

# gone PID: it has ended; its parent may not have waited for it yet.
gone() {
	case $(cat "/proc/$1/stat" 2>/dev/null) in
	"" | *") Z "*) ;;
	*) return 1 ;;
	esac
}
