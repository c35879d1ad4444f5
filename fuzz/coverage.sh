#!/bin/sh
# Says how many lines of its parser the seeds of each target reach: fuzz/coverage.sh [--lines] [TARGET ...]
#   --lines  names each line that they do not reach
#   TARGET   those only; all by default
# Which files a parser is: parsers.txt. The compiler counts (-C instrument-coverage), and coverage/ reads what it counted,
# so that neither LLVM's tools nor a nightly compiler are needed. Exits with 1 if any target reaches less than it must.
set -eu
cd "$(dirname "$0")"

lines=
case "${1:-}" in
--lines) lines=--lines; shift ;;
esac
built=${CARGO_TARGET_DIR:-$PWD/target}/coverage
targets=${*:-$(sed -n 's/^path = "fuzz_targets\/\(.*\)\.rs"$/\1/p' Cargo.toml)}

cargo build --quiet --manifest-path coverage/Cargo.toml --target-dir "$built/reader"
bins=
for target in $targets; do
    bins="$bins --bin $target"
done
# shellcheck disable=SC2086 # the words are one argument each
CARGO_PROFILE_DEV_DEBUG=0 RUSTFLAGS="--cfg fuzzing -C instrument-coverage" \
    cargo build --quiet --target-dir "$built" $bins
rm -rf "$built/profiles"
mkdir -p "$built/profiles"
for target in $targets; do
    if ! LLVM_PROFILE_FILE="$built/profiles/$target.profraw" "$built/debug/$target" seeds/"$target"/* \
        >"$built/profiles/$target.log" 2>&1; then
        tail -n 20 "$built/profiles/$target.log" >&2
        exit 1
    fi
done
"$built/reader/debug/coverage" .. "$built/debug" "$built/profiles" $lines
