# Nighttrain: what can be done here. `make help` lists it.
#
# Needed: a Rust toolchain by rustup (rust-toolchain.toml names the version, rustup fetches it by itself), a C
# compiler to link with, and for the end-to-end tests some Debian packages (tests/install-packages.sh gets them).

CARGO ?= cargo
TARGET = $(or $(CARGO_TARGET_DIR),target)
# The version that deny.toml was written for; any that is installed is taken.
CARGO_DENY_VERSION = 0.20.2
# Runs the tests beside each other; any version from this one on is taken.
NEXTEST_VERSION = 0.9.151
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60
# Seconds of the soak.
SOAK_SECONDS ?= 600

# Those who installed rustup without a new login still have cargo.
export PATH := $(PATH):$(HOME)/.cargo/bin

.DEFAULT_GOAL := help
.PHONY: help run test quick check format lint house no-std docs deny packages nextest test-workspace test-models lab dist soak siege conformance smuggling fuzz fuzz-coverage asan clean toolchain

help: ## Lists what can be done
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' Makefile bench/bench.mk

run: toolchain ## Builds, and starts accelerator, feed and mail with sample mails arriving (ARGS="--state DIR")
	@test -x $(TARGET)/release/nighttrain || \
		echo "Building nighttrain into $(TARGET)/release: four to nine minutes on two cores the first time, seconds after a change."
	@$(CARGO) build --release --package nighttrain
	@echo "Starting it: accelerator, feed and mail, on loopback alone. Ctrl-C ends it."
	@exec $(TARGET)/release/nighttrain serve --demo $(ARGS)

test: house packages nextest check test-workspace test-models test-bench ## Everything: checks, unit, property, end-to-end tests, models, benches run tiny

# Of the crates that were changed since the last commit (or by it, when nothing is): QUICK="cache wire" names others.
QUICK ?= $(or $(shell git status --porcelain | sed -n 's,^.. crates/\([a-z]*\)/.*,\1,p' | sort -u), \
	$(shell git diff --name-only HEAD~1 2>/dev/null | sed -n 's,^crates/\([a-z]*\)/.*,\1,p' | sort -u))
quick: toolchain nextest ## The tests of the crates that were changed, without the long ones (QUICK="cache wire")
	$(CARGO) nextest run --profile quick $(addprefix --package ,$(or $(QUICK),wire))

check: format lint house no-std docs ## Format, lints, what the house demands, documentation

format: toolchain
	$(CARGO) fmt --all --check

lint: toolchain
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# Arrows, unsafe code, licences and sources of libraries, their reasons, unused ones: seconds, and no server is built
# for it.
house: toolchain
	$(CARGO) test --quiet --package house

# The queues without the standard library; a workspace build would not notice, because it unifies features.
no-std: toolchain
	$(CARGO) check --package bheap --no-default-features

docs: toolchain
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

deny: toolchain ## Licences, sources, bans and advisories by cargo-deny, whose building takes some minutes
	@$(CARGO) deny --version >/dev/null 2>&1 || { \
		echo "cargo-deny is missing: installing version $(CARGO_DENY_VERSION), which takes some minutes"; \
		$(CARGO) install cargo-deny --locked --version $(CARGO_DENY_VERSION) --quiet; }
	$(CARGO) deny --all-features --log-level error check --hide-inclusion-graph

packages:
	sh tests/install-packages.sh
	sh tests/install-clients.sh

# Unoptimised, because its own building counts in every cold run and its running hardly does.
nextest: toolchain
	@$(CARGO) nextest --version >/dev/null 2>&1 || { \
		echo "cargo-nextest is missing: building version $(NEXTEST_VERSION), which takes about two minutes"; \
		CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install cargo-nextest --locked --version $(NEXTEST_VERSION) --debug \
			--no-default-features --quiet; }

# The programs that the end-to-end tests start are built by it. Examples in documentation are no tests to nextest.
test-workspace: toolchain nextest
	$(CARGO) nextest run --workspace
	$(CARGO) test --workspace --doc --quiet

# A run of its own: the feature swaps the engine's atomics, and cargo would unify it into everything else.
test-models: toolchain
	$(CARGO) test --package engine --features loom --test loom --test loom_ring

include bench/bench.mk

# LAB_ARGS: --quick, --directory DIR for its large files, …
lab: toolchain ## All claims put to the test, for the record in docs/lab: up to 45 minutes (LAB_ARGS="--quick")
	$(CARGO) build --profile dist --package nighttrain --package lab --bins
	@mkdir -p docs/lab
	$(TARGET)/dist/nighttrain lab all --json --markdown docs/lab/README.md $(LAB_ARGS) \
		> docs/lab/results.json.new
	@mv docs/lab/results.json.new docs/lab/results.json

# Prints the tarball's name. Its container file is in it; a test unpacks and runs both (tests/tests/it/dist.rs).
dist: toolchain ## A tarball to install: programs, systemd unit, completions, manual pages, container file
	$(CARGO) build --profile dist --package nighttrain --bin nighttrain --package lab --bin nighttrain-lab
	@sh dist/package.sh $(TARGET)/dist $(TARGET)/package

# What make test runs shortened: clients that come and go, kills, flipped bits, lost power. SOAK_* are counts.
SOAK_KILLS ?= 100
SOAK_FLIPS ?= 10000
SOAK_RUNS ?= 3000
SOAK_MAIL_CRASHES ?= 50
soak: toolchain nextest ## The long tests: ten minutes of a feed's clients (SOAK_SECONDS=600), a thousand purges of a cluster, a store's crashes in full
	NIGHTTRAIN_SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test --release --package tests --test it _soak:: -- --nocapture --test-threads 1
	NIGHTTRAIN_SOAK_PURGES=1000 $(CARGO) test --release --package tests --test it cluster_ -- --nocapture --test-threads 2
	LOG_KILLS=$(SOAK_KILLS) LOG_FLIPS=$(SOAK_FLIPS) LOG_RUNS=$(SOAK_RUNS) \
		$(CARGO) test --release --package engine --test it -- log_kill log_damage log_model io_reads
	PARTS_RUNS=$(SOAK_KILLS) $(CARGO) test --release --package engine --test it store_parts
	STORE_KILLS=$(SOAK_KILLS) $(CARGO) test --release --package tests --test it store_crash
	MAIL_CRASHES=$(SOAK_MAIL_CRASHES) $(CARGO) test --release --package tests --test it mail_crash
	MAIL_POWER_LOSSES=$(SOAK_RUNS) $(CARGO) test --release --package mail --test it power
	FULL_CASES=1 $(CARGO) nextest run --release --package bheap --package engine --package lab --package mail --package tests \
		--package wire -E 'test(/twin|ring|histogram|index|smtp|fields|pipelines|articles_sizes/)'

# What SIEGE_ARGS may say: --seconds 60 --pairs 9 --only NAME (`siege list` names the attackers)
siege: toolchain ## All attackers at once against serve, beside honest clients: nine pairs of two minutes (SIEGE_ARGS="--pairs 1")
	$(CARGO) build --release --package nighttrain --package tests --bins
	NIGHTTRAIN_BIN=$(TARGET)/release/nighttrain $(TARGET)/release/siege run $(SIEGE_ARGS)

# Its record is compared by make test (tests/tests/it/conformance.rs).
conformance: toolchain ## The public suite for RFC 9111 (npm's http-cache-tests) into docs/conformance, in half a minute
	$(CARGO) build --package nighttrain --package tests --bin nighttrain --bin conformance
	@mkdir -p docs/conformance
	@NIGHTTRAIN_BIN=$(TARGET)/debug/nighttrain $(TARGET)/debug/conformance docs/conformance/http-cache-tests.md

# Its record is compared by make test (tests/tests/it/corpus.rs).
smuggling: toolchain ## The tables of ambiguous messages (tests/corpus) in front of six origins into docs/conformance
	$(CARGO) build --package nighttrain --package tests --bin nighttrain --bin smuggling
	@NIGHTTRAIN_BIN=$(TARGET)/debug/nighttrain $(TARGET)/debug/smuggling

fuzz: toolchain ## Each fuzz target for FUZZ_SECONDS=60; needs a nightly toolchain
	sh fuzz/run.sh $(FUZZ_SECONDS)

fuzz-coverage: toolchain ## How many lines of its parser each fuzz target's seeds reach: a table, 90% at least
	sh fuzz/coverage.sh

asan: toolchain ## The unsafe code of the queues under the address sanitizer; needs a nightly toolchain
	sh crates/bheap/asan.sh

clean: ## Removes what was built
	$(CARGO) clean

toolchain:
	@command -v $(CARGO) >/dev/null 2>&1 || { \
		echo "cargo is missing. Install rustup (https://rustup.rs), then run make again: it fetches the toolchain that rust-toolchain.toml names." >&2; exit 1; }
	@command -v cc >/dev/null 2>&1 || { \
		echo "a C compiler is missing: programs are linked with it. On Debian: apt-get install gcc libc6-dev" >&2; exit 1; }
	@wanted=$$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml); rustc --version | grep -q " $$wanted " || { \
		echo "this is $$(rustc --version); Nighttrain is built with $$wanted (rust-toolchain.toml), which rustup selects by itself" >&2; exit 1; }
