# Included by the Makefile at the top. BENCH_ARGS: --quick, --only limit,ours,nginx, --scenario one-1k-64, …
.PHONY: bench-cache
bench-cache:
	cargo build --release --package nighttrain
	cargo build --release --package engine --example store_bench
	cargo run --release -p lab --bin bench-cache -- $(BENCH_ARGS)

# Stores that are 19 times larger than their memory. BENCH_ARGS: --memory-mib 96, --only disk,ours-direct,nginx, --quick, …
.PHONY: bench-pressure
bench-pressure:
	cargo build --release --package nighttrain
	cargo run --release -p lab --bin bench-pressure -- $(BENCH_ARGS)
