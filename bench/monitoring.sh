#!/bin/sh
# What asking for /varz costs a feed that holds many subscriptions: sh bench/monitoring.sh PROGRAM [SUBSCRIPTIONS] [ROUNDS]
# Prints how long /varz takes (median and the longest of 100), and the p99 of deliveries at 10,000 messages a second:
# alone, with somebody asking 50 times a second for /healthz, which says two words, and with the same asking for /varz; in
# turns, nine of each, and the median of each. So what the asking program takes is apart. Needs python3.
set -eu
program=${1:?the program: target/dist/nighttrain}
subscriptions=${2:-1000000}
rounds=${3:-9}
directory=$(mktemp -d)
feed= holder= poller=
trap 'for pid in $poller $holder $feed; do kill "$pid" 2>/dev/null || :; done; rm -rf "$directory"' EXIT INT TERM

"$program" feed --listen 127.0.0.1:0 --monitor 127.0.0.1:0 --admin 127.0.0.1:0 >"$directory/said" 2>&1 &
feed=$!
until grep -q '^admin:' "$directory/said"; do sleep 0.1; done
url=$(sed -n 's/^feed: listening on //p' "$directory/said")
monitor=$(sed -n 's/^monitor: listening on //p' "$directory/said")

cat >"$directory/hold.py" <<'END'
import socket, sys, time
host, port = sys.argv[1].split("//")[1].split(":")
client = socket.create_connection((host, int(port)))
client.sendall(b'CONNECT {"verbose":false}\r\n')
count = int(sys.argv[2])
for at in range(0, count, 1000):
    client.sendall(b"".join(b"SUB held.%d.x %d\r\n" % (n, n) for n in range(at, min(at + 1000, count))))
client.sendall(b"PING\r\n")
heard = b""
while b"PONG" not in heard:
    heard = heard[-8:] + client.recv(65536)
print("held", flush=True)
while True:
    if b"PING" in client.recv(65536):
        client.sendall(b"PONG\r\n")
END
cat >"$directory/poll.py" <<'END'
import sys, time, urllib.request
def ask():
    begin = time.perf_counter()
    urllib.request.urlopen(sys.argv[1]).read()
    return (time.perf_counter() - begin) * 1e3
if sys.argv[2] == "time":
    took = sorted(ask() for _ in range(100))
    print("/varz: median %.2f ms, longest %.2f ms" % (took[50], took[-1]))
else:
    while True:
        ask()
        time.sleep(0.02)
END
python3 "$directory/hold.py" "$url" "$subscriptions" >"$directory/held" &
holder=$!
until grep -q held "$directory/held"; do sleep 0.1; done
echo "$subscriptions subscriptions"
python3 "$directory/poll.py" "$monitor/varz" time

p99() {
	"$program" feed bench --url "$url" --messages 20000 --rate 10000 --json |
		sed -n 's/.*"p99": \([0-9.]*\).*/\1/p' | head -n 1
}
median() { sort -n "$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

# The p99 with somebody asking for a page.
beside() {
	python3 "$directory/poll.py" "$monitor/$1" again &
	poller=$!
	p99 >"$directory/one"
	kill "$poller"
	wait "$poller" 2>/dev/null || :
	poller=
	cat "$directory/one"
}

for round in $(seq "$rounds"); do
	p99 >>"$directory/alone"
	beside healthz >>"$directory/healthz"
	beside varz >>"$directory/varz"
	echo "$round: p99 $(tail -n 1 "$directory/alone") us alone, $(tail -n 1 "$directory/healthz") beside /healthz," \
		"$(tail -n 1 "$directory/varz") beside /varz"
done
echo "median p99: $(median "$directory/alone") us alone, $(median "$directory/healthz") beside /healthz," \
	"$(median "$directory/varz") beside /varz"
