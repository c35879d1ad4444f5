#!/bin/sh
# What accelerators on a cluster of three nats-servers say to it: sh bench/cluster.sh PROGRAM NATS_SERVER [INSTANCES] [PURGES]
# Prints, for twice as many instances each time (1, 2, … INSTANCES, 8), messages and bytes in and out of all three servers and their
# processor time: a second at rest (of 20), and a purge everywhere (of PURGES, 200). All on loopback; ports 18400 on.
# Needs curl and python3.
set -eu
program=${1:?the program: target/release/nighttrain}
server=${2:?nats-server, 2.10 or later}
instances=${3:-8}
purges=${4:-200}
directory=$(mktemp -d)
pids=
trap 'for pid in $pids; do kill "$pid" 2>/dev/null || :; done; sleep 1; rm -rf "$directory"' EXIT INT TERM

routes=nats-route://127.0.0.1:18411,nats-route://127.0.0.1:18412,nats-route://127.0.0.1:18413
servers=nats://127.0.0.1:18401,nats://127.0.0.1:18402,nats://127.0.0.1:18403
for n in 1 2 3; do
	"$server" --name "n$n" --addr 127.0.0.1 --port "1840$n" --http_port "1842$n" --jetstream --store_dir "$directory/n$n" \
		--cluster_name bench --cluster "nats://127.0.0.1:1841$n" --routes "$routes" >"$directory/n$n.log" 2>&1 &
	pids="$pids $!"
done
nats=$pids

# Messages and bytes in and out of clients, of all three. (What servers say to each other is not counted by them.)
look() {
	for n in 1 2 3; do curl -s "http://127.0.0.1:1842$n/varz"; done | awk -F '[:,]' '
		/"in_msgs"/ { a += $2 } /"out_msgs"/ { b += $2 } /"in_bytes"/ { c += $2 } /"out_bytes"/ { d += $2 }
		END { print a, b, c, d }'
}
cpu() {
	for pid in $nats; do awk '{ print $14 + $15 }' "/proc/$pid/stat"; done | awk '{ sum += $1 } END { print sum }'
}
# What came between two looks, for each of so many of something.
between() {
	echo "$1 $2 $3 $4" | awk -v what="$5" -v each="$6" '{
		printf "  %-18s %8.1f in %8.1f out, %9.0f bytes in %9.0f out, %7.0f µs of processor time\n", what,
			($6 - $1) / each, ($7 - $2) / each, ($8 - $3) / each, ($9 - $4) / each, ($10 - $5) * 10000 / each }'
}

python3 -m http.server --bind 127.0.0.1 --directory "$directory" 18430 >/dev/null 2>&1 &
pids="$pids $!"
sleep 3
count=0
while [ "$count" -lt "$instances" ]; do
	count=$((count + 1))
	"$program" cache --origin http://127.0.0.1:18430 --listen "127.0.0.1:$((18440 + count))" --admin "127.0.0.1:$((18460 + count))" \
		--memory 16MiB --cores 0 --state "$directory/s$count" --cluster "$servers" --cluster-name "web$count" \
		>"$directory/web$count.log" 2>&1 &
	pids="$pids $!"
	until curl -s "http://127.0.0.1:$((18460 + count))/cluster" | grep -q '"joined": *true'; do sleep 0.2; done
	[ $((count & (count - 1))) -eq 0 ] || continue
	echo "$count instances"
	sleep 2
	before=$(look) cpu_before=$(cpu)
	sleep 20
	after=$(look) cpu_after=$(cpu)
	between "$before" "$cpu_before" "$after" "$cpu_after" "a second at rest" 20
	before=$(look) cpu_before=$(cpu)
	at=0
	while [ "$at" -lt "$purges" ]; do
		at=$((at + 1))
		said=$(curl -s -X POST "http://127.0.0.1:18461/purge?everywhere&url=http://www.example.org/$at")
		case $said in *'"applied"'*) ;; *) echo "$said" >&2; exit 1 ;; esac
	done
	after=$(look) cpu_after=$(cpu)
	between "$before" "$cpu_before" "$after" "$cpu_after" "a purge" "$purges"
done
