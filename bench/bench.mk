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
