#!/bin/sh
# Runs the tests that use unsafe code under the address sanitizer; needs a nightly compiler with its standard library.
#   crates/bheap/asan.sh [TEST ...]     by default those of memory, blocks, files, handles and panics
set -eu
cd "$(dirname "$0")/../.."
target=$(rustc -vV | sed -n 's/^host: //p')
tests=${*:-bad_input handles twin file_twin file_queue_damage}
set --
for test in $tests; do set -- "$@" --test "$test"; done
BHEAP_STEPS=${BHEAP_STEPS:-100000} BHEAP_DAMAGE_ROUNDS=${BHEAP_DAMAGE_ROUNDS:-20} BHEAP_POWER_ROUNDS=${BHEAP_POWER_ROUNDS:-25} \
RUSTFLAGS=-Zsanitizer=address exec cargo +nightly test -p bheap --target "$target" --lib "$@" --quiet
