#!/bin/sh
# What `serve` costs before anybody asks it for anything: sh bench/idle.sh PROGRAM [STARTS] [SECONDS]
# Prints how long it takes until every address is announced (median of STARTS, 15, with empty stores), and then, watched
# for SECONDS (30): processor time, times that a thread woke, memory.
set -eu
program=${1:?the program: target/release/nighttrain}
starts=${2:-15}
seconds=${3:-30}
directory=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || :; rm -rf "$directory"' EXIT INT TERM
mkfifo "$directory/said"
export NIGHTTRAIN_CACHE_LISTEN=127.0.0.1:0 NIGHTTRAIN_FEED_LISTEN=127.0.0.1:0 NIGHTTRAIN_FEED_MONITOR=127.0.0.1:0
export NIGHTTRAIN_MAIL_SMTP=127.0.0.1:0 NIGHTTRAIN_MAIL_HTTP=127.0.0.1:0 NIGHTTRAIN_ADMIN=127.0.0.1:0

# Leaves it running as $pid, and the milliseconds that it took in $took.
start() {
	rm -rf "$directory/state"
	before=$(date +%s%N)
	"$program" serve --state "$directory/state" >"$directory/said" 2>"$directory/errors" &
	pid=$!
	ready=
	while read -r line; do
		case $line in admin:*) ready=yes; break ;; esac
	done <"$directory/said"
	took=$((($(date +%s%N) - before) / 10000))
	[ -n "$ready" ] || { cat "$directory/errors" >&2; exit 1; }
}

stop() {
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || :
	pid=
}

# Nanoseconds on a processor and times gone to sleep, of all threads.
spent() {
	cat /proc/"$pid"/task/*/schedstat | awk '{ns += $1} END {printf "%d ", ns}'
	cat /proc/"$pid"/task/*/status | awk '/^voluntary_ctxt_switches/ {times += $2} END {print times}'
}

number=0
while [ "$number" -lt "$starts" ]; do
	start
	stop
	echo "$took"
	number=$((number + 1))
done | sort -n | awk '{all[NR] = $1 / 100}
	END {printf "ready           %.1f ms (median of %d; %.1f to %.1f)\n", all[int((NR + 1) / 2)], NR, all[1], all[NR]}'

start
# What a start leaves to be done, and the first ping of the feed's own client, are over.
sleep 5
first=$(spent)
sleep "$seconds"
echo "$first $(spent)" | awk -v seconds="$seconds" '{
	printf "idle processor  %.3f%% of a core over %d s, %.1f wake-ups a second\n", ($3 - $1) / seconds / 1e7, seconds, ($4 - $2) / seconds}'
awk '/^(VmRSS|RssAnon|RssFile|RssShmem)/ {kib[$1] = $2 / 1024}
	END {printf "idle memory     %.1f MiB resident: %.1f anonymous, %.1f of files (mostly the program), %.1f shared\n",
		kib["VmRSS:"], kib["RssAnon:"], kib["RssFile:"], kib["RssShmem:"]}' /proc/"$pid"/status
stop
