# Included by the Makefile at the top. Recorded figures are of the profile that packages are made of.
# To compare two builds in turns, name the other's program:
#   NIGHTTRAIN_OTHER=target/release/nighttrain make bench PART=cache \
#       BENCH_ARGS="--only ours,ours-other --scenario one-1k-64 --pairs 15"
BENCH = $(TARGET)/dist/bench
BENCH_BUILD = $(CARGO) build --profile dist --package nighttrain --bin nighttrain

.PHONY: bench bench-list benchmarks-page record-html test-bench bench-check bench-idle bench-building bench-instructions

# PART=cache, tls, feed, mail or pressure: only that. QUICK=1: ten minutes, whose record goes to target/bench, and no pages.
# BENCH_ARGS: --scenario one-1k-64,zipf-1k-64, --only ours,nginx, --pairs 3, …; `make bench-list` names them.
bench: toolchain ## Compares with all peers in one go, says first how long it takes, makes the pages (QUICK=1, PART=cache)
	@echo "Building in the profile of packages, which takes some minutes the first time."
	@$(BENCH_BUILD)
	@$(CARGO) build --profile dist --package engine --example store_bench
	@cd bench && $(CARGO) build --profile dist --features libraries
	@$(BENCH) run $(PART) $(if $(filter 1,$(QUICK)),--quick) $(BENCH_ARGS)
	@$(if $(filter 1,$(QUICK)),,$(BENCH) pages)

bench-list: toolchain ## Names the parts, scenarios and contenders of make bench
	@cd bench && $(CARGO) run --quiet -- list

benchmarks-page: toolchain ## Makes docs/benchmarks.md, its charts and the README's from the records in bench/records
	@cd bench && $(CARGO) run --quiet -- pages

# A record as a page: make record-html RECORD=bench/records/NAME.json (or docs/lab/results.json) > page.html
RECORD ?= docs/lab/results.json
record-html: toolchain ## Prints one record as a page with drawings (RECORD=bench/records/NAME.json)
	@cd bench && $(CARGO) run --quiet -- html $(abspath $(RECORD))

# Each scenario tiny: counts, no times. After the product's tests, which build the program that it starts.
test-bench: toolchain nextest
	cd bench && $(CARGO) nextest run

bench-check: toolchain ## Format, lints and tests of the bench, which are not the product's
	cd bench && $(CARGO) fmt --check && $(CARGO) clippy --all-targets -- -D warnings
	$(CARGO) build --package nighttrain --bin nighttrain
	$(MAKE) test-bench

# The program at rest: its start, its processor time, its memory. BENCH_ARGS: STARTS SECONDS
bench-idle:
	$(BENCH_BUILD)
	sh bench/idle.sh $(TARGET)/dist/nighttrain $(BENCH_ARGS)

# The time of a build: of the program from nothing and after a changed line, of a crate's unit tests after one.
bench-building:
	sh bench/building.sh

# Instructions of a hit by source file, counted by valgrind. BENCH_ARGS: HITS, h1 or h2, STREAMS
bench-instructions:
	$(CARGO) build --release --package nighttrain
	sh bench/instructions.sh $(TARGET)/release/nighttrain $(BENCH_ARGS)
