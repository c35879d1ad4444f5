# Included by the Makefile at the top. BENCH_ARGS: --quick, --only limit,ours,nginx, --scenario one-1k-64, …; --list
# names them Recorded figures are of the profile that packages are made of. To hold two builds against each other in
# turns, name the other's program: NIGHTTRAIN_OTHER=target/release/nighttrain make bench-cache BENCH_ARGS="--only
# ours,ours-other --scenario one-1k-64 --rounds 15"
BENCH_BUILD = cargo build --profile dist --package nighttrain --package lab --bins
BENCH_PROGRAMS = $(TARGET)/dist

.PHONY: bench-cache
bench-cache:
	$(BENCH_BUILD)
	cargo build --profile dist --package engine --example store_bench
	$(BENCH_PROGRAMS)/bench-cache $(BENCH_ARGS)

# Hits under TLS and over HTTP/2, handshakes, connections at rest. BENCH_ARGS: --quick, --only ours,nginx, --scenario
# tls-1k,h2-1k-10x10,idle, --rounds 3; --list names them
.PHONY: bench-tls
bench-tls:
	$(BENCH_BUILD)
	$(BENCH_PROGRAMS)/bench-tls $(BENCH_ARGS)

.PHONY: bench-feed
bench-feed:
	$(BENCH_BUILD)
	$(BENCH_PROGRAMS)/bench-feed $(BENCH_ARGS)

# BENCH_ARGS: --quick, --only sink,ours, --scenario reused,connections,stored,pages,list-100,search,rare-word,
# newsletter,slow-mails,browser,pipelined,idle. Mailpit beside it: bench/install-mailpit.sh
.PHONY: bench-mail
bench-mail:
	$(BENCH_BUILD)
	$(BENCH_PROGRAMS)/bench-mail $(BENCH_ARGS)

# Stores that are 19 times larger than their memory. BENCH_ARGS: --quick, --scenario servers,stores,cold,resident,start,
# --only ours-direct,nginx, --memory-mib 96, --seconds 3, --rounds 3, …
.PHONY: bench-pressure
bench-pressure:
	$(BENCH_BUILD) --features lab/peers
	$(BENCH_PROGRAMS)/bench-pressure $(BENCH_ARGS)

# What the program costs while nobody asks it for anything: start, processor, memory. BENCH_ARGS: STARTS SECONDS
.PHONY: bench-idle
bench-idle:
	$(BENCH_BUILD)
	sh bench/idle.sh $(BENCH_PROGRAMS)/nighttrain $(BENCH_ARGS)

# What building costs: the program from nothing, after a changed line, a crate's unit tests after one.
.PHONY: bench-building
bench-building:
	sh bench/building.sh

# Instructions of a hit by source file, counted by valgrind. BENCH_ARGS: HITS, h1 or h2, STREAMS
.PHONY: bench-instructions
bench-instructions:
	cargo build --release --package nighttrain
	sh bench/instructions.sh $(TARGET)/release/nighttrain $(BENCH_ARGS)
