#!/bin/sh
# Fuzzes each target for a bounded time: fuzz/run.sh [SECONDS] [TARGET ...]
#   SECONDS  for each target; 60 by default
#   TARGET   those only; all by default
# What is found is kept in fuzz/artifacts/TARGET, what was learnt in fuzz/corpus/TARGET; the seeds are in
# fuzz/seeds/TARGET. Exits with 1 if any target found something.
set -eu
cd "$(dirname "$0")"

seconds=60
case "${1:-}" in
'') ;;
*[!0-9]*) ;;
*) seconds=$1; shift ;;
esac
# To libFuzzer 0 means without end.
[ "$seconds" -gt 0 ] || { echo "fuzz/run.sh: SECONDS must be at least 1" >&2; exit 2; }

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "fuzz/run.sh: needs a nightly compiler, for its sanitizers: rustup toolchain install nightly --profile minimal" >&2
    exit 1
fi
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "fuzz/run.sh: installing cargo-fuzz"
    cargo +nightly install cargo-fuzz --locked
fi

targets=${*:-$(sed -n 's/^path = "fuzz_targets\/\(.*\)\.rs"$/\1/p' Cargo.toml)}
# All are built first, so that the time given is for fuzzing.
for target in $targets; do
    cargo +nightly fuzz build --fuzz-dir . "$target"
done

export LSAN_OPTIONS="suppressions=$PWD/lsan.supp"
failed=
for target in $targets; do
    mkdir -p "corpus/$target" "seeds/$target"
    log=$(mktemp)
    if cargo +nightly fuzz run --fuzz-dir . "$target" "corpus/$target" "seeds/$target" -- \
        -max_total_time="$seconds" -max_len=4096 -timeout=10 -print_final_stats=1 >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        covered=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
        echo "$target: $runs runs in $seconds s, $covered edges, nothing found"
    else
        failed="$failed $target"
        tail -n 60 "$log"
    fi
    rm -f "$log"
done
if [ -n "$failed" ]; then
    echo "fuzz/run.sh: found something:$failed (see fuzz/artifacts)" >&2
    exit 1
fi
