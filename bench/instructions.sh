#!/bin/sh
# How many instructions a hit takes, and where they are: sh bench/instructions.sh PROGRAM [HITS] [h1|h2] [STREAMS]
# Counted by valgrind (callgrind) in user mode: the same on a noisy machine as on a quiet one. The program is run twice, for
# HITS (20,000) and twice as many by h2load on one connection, so that its start does not count. Prints the sum for each hit,
# and the source files that take the most of it. `h1` asks over HTTP/1.1 (the default), `h2` over HTTP/2 with STREAMS (100).
# It takes a program with lines in its debug information (`make bench-instructions` builds one).
set -eu
program=${1:?the program: target/release/nighttrain}
hits=${2:-20000}
protocol=${3:-h1}
streams=${4:-100}
port=${PORT:-18999}
directory=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || :; rm -rf "$directory"' EXIT INT TERM
case $protocol in
h1) asks=--h1 streams=1 ;;
h2) asks= ;;
*) echo "$protocol: h1 or h2" >&2; exit 2 ;;
esac

# Counts a run of so many hits into a file.
count() {
	valgrind --tool=callgrind --callgrind-out-file="$directory/$1" --cache-sim=no --branch-sim=no \
		"$program" cache --demo --cores 0 --listen "127.0.0.1:$port" --admin 127.0.0.1:0 >"$directory/said" 2>&1 &
	pid=$!
	tries=0
	until curl -s -o /dev/null "http://127.0.0.1:$port/"; do
		tries=$((tries + 1))
		[ "$tries" -lt 300 ] || { cat "$directory/said" >&2; exit 1; }
		sleep 0.2
	done
	h2load $asks -n "$1" -c 1 -m "$streams" "http://127.0.0.1:$port/" >"$directory/load" 2>&1
	grep -q " $1 succeeded" "$directory/load" || { cat "$directory/load" >&2; exit 1; }
	kill "$pid"
	wait "$pid" 2>/dev/null || :
	pid=
}

count "$hits"
count $((2 * hits))

# What each file has itself: a line of a call says what the callee has, which is not the caller's.
by_file() {
	awk '
		/^(fl|fi|fe|cfl|cfi)=/ {
			name = $0; sub(/^[a-z]+=/, "", name)
			id = name; sub(/ .*/, "", id)
			if (name != id) { names[id] = substr(name, length(id) + 2) }
			if ($0 !~ /^c/) { file = names[id] }
			next
		}
		/^calls=/ { of_call = 1; next }
		/^[0-9+*-]/ {
			if (of_call) { of_call = 0; next }
			sum[file] += $2
		}
		END { for (file in sum) { printf "%d %s\n", sum[file], file } }
	' "$directory/$1" | sort -k 2
}

by_file "$hits" >"$directory/once"
by_file $((2 * hits)) >"$directory/twice"
join -1 2 -2 2 -a 2 -e 0 -o 0,1.1,2.1 "$directory/once" "$directory/twice" | awk -v hits="$hits" '
	{ more = ($3 - $2) / hits; all += more; if (more >= 1) { printf "%9.1f  %s\n", more, $1 } }
	END { printf "%9.1f  of a hit\n", all }
' | sort -rn
