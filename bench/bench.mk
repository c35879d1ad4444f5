# Included by the Makefile at the top. BENCH_ARGS: --quick, --only limit,ours,nginx, --scenario one-1k-64, …
.PHONY: bench-cache
bench-cache:
	cargo build --release --workspace --bins --examples
	cargo run --release -p lab --bin bench-cache -- $(BENCH_ARGS)
