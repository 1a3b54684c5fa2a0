#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks on two hosts that share no memory: two network namespaces and a wire between them, and another for UCX.
. "$top_srcdir/tests/lib.sh"
a=frag-$$-a b=frag-$$-b

at_end() {
	ip netns del "$a" 2>/dev/null || :
	ip netns del "$b" 2>/dev/null || :
}

[ "$(id -u)" = 0 ] || skip "network namespaces are for root"
command -v ip >/dev/null || skip "no ip(8)"
why=$(ip netns add "$a" 2>&1 && ip netns add "$b" 2>&1) || skip "no network namespaces: $why"
why=$(ip netns exec "$a" true 2>&1) || skip "no command runs in a network namespace: $why"
why=$(ip link add frag-a netns "$a" type veth peer name frag-b netns "$b" 2>&1) || skip "no veth: $why"
ip link add frag-ucx-a netns "$a" type veth peer name frag-ucx-b netns "$b"
ip -n "$a" addr add 10.78.0.1/24 dev frag-ucx-a && ip -n "$b" addr add 10.78.0.2/24 dev frag-ucx-b
ip -n "$a" addr add 10.77.0.1/24 dev frag-a && ip -n "$b" addr add 10.77.0.2/24 dev frag-b
for side in a b; do
	eval "name=\$$side"
	ip -n "$name" link set lo up && ip -n "$name" link set "frag-$side" up && ip -n "$name" link set "frag-ucx-$side" up
done
# The kernel reports only a second later that a connected wire runs.
all_run() {
	[ "$(for name in "$a" "$b"; do ip -n "$name" link show up; done | grep -c 'frag-.*state UP')" = 4 ]
}
wait_until 60 all_run || fail "$(ip -n "$b" link)"
# Not every kernel has routing rules for ports.
if ip -n "$b" rule add from 10.77.0.2 ipproto tcp sport 1 type blackhole 2>/dev/null; then
	export TEST_FIREWALL=1
else
	echo "no rule for a port: no test has a firewall"
fi
(umask 077 && od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >job.key && echo >>job.key)
HOST_A=$a HOST_B=$b "$top_builddir/tests/ranks/two-hosts"
