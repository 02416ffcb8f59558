# What people type. The building is CMake's work (CMakePresets.json), the setting-up tools/setup.sh's, the order of the
# whole test tools/test.sh's. Every target sets up what it needs first.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 300
STRESS_SECONDS ?= 600
KILLS ?= 1000
PYTEST_ARGS ?=
export PYTHON VENV JOBS FUZZ_SECONDS

PY := $(VENV)/bin/python
WHEEL_STAMP := build/wheel/installed
WHEEL_SOURCES := $(shell find src include cmake python CMakeLists.txt pyproject.toml README.md -type f \
	-not -name '*.pyc' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-quick test-compare bench bench-torch bench-engine bench-mindspore lint fuzz stress kill-moments simulate asan tsan coverage aarch64 wheel install clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null || \
		grep '##' $(MAKEFILE_LIST)

setup: ## install system packages, .venv and the pinned Python packages; nothing when they are there
	@tools/setup.sh

build: setup ## the library and the command with all warnings as errors, in build/dev
	@tools/stage.sh configure dev
	@cmake --build --preset dev -j $(JOBS)

demo: $(WHEEL_STAMP) ## record a small training run twice and look at the recordings
	@$(PY) examples/demo.py build/demo

test: setup ## everything: sanitizers, stress, aarch64, fuzz corpus, wheel, Python, faults (under 40 minutes)
	@tools/test.sh all

test-quick: setup ## the C tests and the quick Python tests (under 2 minutes)
	@tools/test.sh quick

test-compare: $(WHEEL_STAMP) ## comparing: every column of planted faults, every compiler against eager
	@PLANTED_ALL=1 $(PY) -m pytest -q -s tests/compare $(PYTEST_ARGS)

bench: $(WHEEL_STAMP) ## the speed table, beside numpy, torch and mindstudio-probe
	@tools/setup.sh bench
	@tools/stage.sh configure release
	@cmake --build --preset release -j $(JOBS)
	@tools/stage.sh bench

bench-torch: $(WHEEL_STAMP) ## what taps cost in torch, beside mindstudio-probe
	@tools/setup.sh bench
	@$(PY) bench/torch/bench_torch.py

bench-engine: $(WHEEL_STAMP) ## every native operator beside eager, and what compiling costs
	@$(PY) bench/ops/bench_ops.py
	@$(PY) bench/compile/bench_compile.py

bench-mindspore: $(WHEEL_STAMP) ## what taps cost in MindSpore, beside its TensorDump and mindstudio-probe
	@tools/setup.sh mindspore-bench
	@.venv-mindspore-bench/bin/python -m pip install --disable-pip-version-check -q --force-reinstall --no-deps build/wheel/*.whl
	@.venv-mindspore-bench/bin/python bench/mindspore/bench_mindspore.py

lint: setup ## ruff, mypy --strict, and the rule of directories
	@tools/stage.sh lint

fuzz: setup ## every fuzz target for FUZZ_SECONDS (300)
	@tools/stage.sh fuzz $(FUZZ_SECONDS)

stress: setup ## random operations under every fault for STRESS_SECONDS (600); STRESS_SEED=N: those of that seed
	@tools/stage.sh stress $(STRESS_SECONDS)

kill-moments: setup ## kill -9 at KILLS (1000) random moments of each layout, synchronous and not (an hour)
	@tools/stage.sh kill-moments $(KILLS)

simulate: setup ## the machine dies: every state of the disk after workloads of up to three operations (hours)
	@tools/stage.sh simulate

asan: setup ## the C tests under the address and undefined-behaviour sanitizers
	@tools/stage.sh ctest asan

tsan: setup ## the C tests under the thread sanitizer
	@tools/stage.sh ctest tsan

coverage: setup ## what the C tests reach, as build/coverage/html
	@tools/stage.sh coverage

aarch64: setup ## the kernels' tests for ARM, under qemu
	@tools/stage.sh aarch64

wheel: setup ## the Python wheel, in dist
	@tools/stage.sh wheel

$(WHEEL_STAMP): $(WHEEL_SOURCES) tools/requirements.txt | setup
	@tools/stage.sh wheel install

install: setup ## header, libraries, pkg-config file, CMake package and command into PREFIX (/usr/local)
	@tools/stage.sh configure release
	@cmake --build --preset release -j $(JOBS)
	@cmake --install build/release --prefix $(PREFIX)

clean: ## remove everything built; .venv and system packages stay
	rm -rf build dist
