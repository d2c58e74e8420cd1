# Everything one does often. `make` alone lists it.

# Where rustup puts cargo, for shells that have not been told yet.
export PATH := $(PATH):$(HOME)/.cargo/bin
CARGO ?= cargo
# The duration of each fuzz target, and of each point of the benchmark table.
FUZZ_SECONDS ?= 60
# How many seeds of each scenario the simulator runs, and the first of them; SIM is for further options.
SEEDS ?= 1000
SEED ?= 1
SIM ?=

.PHONY: help setup build test lint demo bench sim fuzz clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what the other targets need (apt on Debian; elsewhere it names the packages)
	@ops/setup

build: ## build ashlard and ashlar, optimised
	@ops/setup build
	$(CARGO) build --locked --release --workspace --bins

test: ## run every test, those with real Linux hosts in QEMU too
	@ops/setup build test
	@ops/run-tests

lint: ## check formatting and let clippy judge; warnings are errors
	@ops/setup build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

demo: ## serve namespaces to a real Linux, and a mirrored volume through kills, damage and loss
	@ops/setup build test
	@ops/demo

bench: ## measure and print the table of docs/performance.md
	@ops/setup build bench
	@ops/bench

sim: ## run the storage engine in a simulated world, SEEDS seeds of each scenario from SEED on
	$(CARGO) run --locked --release -p ashlar-sim -- --seeds $(SEEDS) --seed $(SEED) $(SIM)

fuzz: ## throw broken input at every parser for FUZZ_SECONDS each
	@ops/setup build fuzz
	@FUZZ_SECONDS=$(FUZZ_SECONDS) ops/fuzz

clean: ## remove what was built (kernels for the tests stay in the cache)
	$(CARGO) clean
