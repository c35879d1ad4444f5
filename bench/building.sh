#!/bin/sh
# What building costs here: sh bench/building.sh [DIRECTORY] In a target directory of its own: the program from nothing
# (libraries are downloaded already), then the program, and the unit tests, after one line was changed in a crate. Wall
# seconds; a busy machine only makes them longer. Sources are put back.
set -eu
cd "$(dirname "$0")/.."
made=${1:-$(mktemp -d)}
export CARGO_TARGET_DIR="$made"
changed= kept=
trap '[ -z "$changed" ] || mv "$kept" "$changed"' EXIT INT TERM

seconds() {
	before=$(date +%s%N)
	"$@" >"$made/said" 2>&1 || { cat "$made/said" >&2; exit 1; }
	echo $((($(date +%s%N) - before) / 10000000)) | sed 's/\(..\)$/.\1/'
}

# $1: a source in which a function is changed; the rest: what to build then.
after_a_line() {
	changed=$1 kept=$(mktemp)
	cp "$changed" "$kept"
	shift
	printf '\n/// Changed by bench/building.sh.\npub fn changed_line() -> u64 {\n    std::hint::black_box(%s)\n}\n' "$(date +%s)" >>"$changed"
	seconds "$@"
	mv "$kept" "$changed"
	changed=
}

cargo fetch --locked --quiet
echo "the program from nothing: $(seconds cargo build --release --package nighttrain --offline) s"
cargo test --no-run --lib --package wire --package engine --package cache --package feed --package mail --offline --quiet 2>/dev/null
for crate in wire engine cache feed mail; do
	case $crate in
		wire) source=http1/head.rs ;; engine) source=store/shard.rs ;; cache) source=hit.rs ;;
		feed) source=publish.rs ;; mail) source=smtp/session.rs ;;
	esac
	source=crates/$crate/src/$source
	program=$(after_a_line "$source" cargo build --release --package nighttrain --offline)
	tests=$(after_a_line "$source" cargo test --lib --package "$crate" --offline)
	echo "a line in $crate: $program s to the program, $tests s to its unit tests' end"
done
