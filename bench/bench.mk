# Included by the Makefile at the top. BENCH_ARGS: --quick, --only limit,ours,nginx, --scenario one-1k-64, …; --list names them
.PHONY: bench-cache
bench-cache:
	cargo build --release --package nighttrain
	cargo build --release --package engine --example store_bench
	cargo run --release -p lab --bin bench-cache -- $(BENCH_ARGS)

.PHONY: bench-feed
bench-feed:
	cargo build --release --package nighttrain
	cargo run --release -p lab --bin bench-feed -- $(BENCH_ARGS)

# BENCH_ARGS: --quick, --only sink,ours, --scenario reused,connections,stored,pipelined,idle
.PHONY: bench-mail
bench-mail:
	cargo build --release --package nighttrain
	cargo run --release -p lab --bin bench-mail -- $(BENCH_ARGS)
# Stores that are 19 times larger than their memory. BENCH_ARGS: --quick, --scenario servers,stores,cold,resident,start,
# --only ours-direct,nginx, --memory-mib 96, --seconds 3, --rounds 3, …
.PHONY: bench-pressure
bench-pressure:
	cargo build --release --package nighttrain
	cargo run --release -p lab --features peers --bin bench-pressure -- $(BENCH_ARGS)
