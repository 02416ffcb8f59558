#!/usr/bin/env bash
# One stage of building or testing, by name: what each make target and each line of tools/test.sh runs.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
jobs=${JOBS:-$(nproc)}
py=$venv/bin/python

die() { echo "stage: $*" >&2; exit 1; }

configure() { # PRESET
    cmake --preset "$1" >"build/.configure-$1.log" 2>&1 || { cat "build/.configure-$1.log" >&2; exit 1; }
}

ctest_preset() { # PRESET
    configure "$1"
    cmake --build --preset "$1" -j "$jobs"
    # the sanitizers' reports end a test: a test that only prints one is a failure
    ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1 \
        TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp" \
        ctest --test-dir "build/$1" --output-on-failure --no-tests=error -j "$jobs"
}

fuzz_targets() { find build/fuzz -type f -executable -name 'fuzz_*' | sort; }

# Replays what is kept of a target's corpus, then looks for new inputs. A crash leaves its input under build/fuzz/found; put
# it into fuzz/corpus/TARGET once the bug is fixed.
fuzz_one() { # TARGET SECONDS [WALK...]
    local target=$1 name seconds=$2 corpus=() dir
    shift 2
    name=$(basename "$target")
    mkdir -p "build/fuzz/work/$name" build/fuzz/found
    for dir in "fuzz/corpus/$name" "fuzz/corpus/${name#fuzz_}"; do
        [[ -d $dir ]] && corpus+=("$dir")
    done
    if "$target" "build/fuzz/work/$name" ${corpus[@]+"${corpus[@]}"} -max_total_time="$seconds" "$@" -timeout=20 \
        -rss_limit_mb=2048 -artifact_prefix="build/fuzz/found/$name-" -print_final_stats=1 >"build/fuzz/$name.log" 2>&1; then
        echo "fuzz $name: $(grep -hE 'number_of_executed_units' "build/fuzz/$name.log" | grep -oE '[0-9]+$') inputs"
    else
        tail -n 40 "build/fuzz/$name.log"
        die "$name found something: build/fuzz/found"
    fi
}

# As many targets at once as there are cores.
# fixed: the same walk each time, for a test that says the same of the same sources; make fuzz walks elsewhere.
fuzz() { # SECONDS [fixed]
    configure fuzz
    cmake --build --preset fuzz -j "$jobs"
    local target count=0 found=0 walk=()
    [[ ${2:-} == fixed ]] && walk=(-seed=1 -runs=30000) && rm -rf build/fuzz/work
    for target in $(fuzz_targets); do
        if ((count >= jobs)); then
            wait -n || found=1
        fi
        fuzz_one "$target" "$1" ${walk[@]+"${walk[@]}"} &
        count=$((count + 1))
    done
    while [[ -n $(jobs -rp) ]]; do
        wait -n || found=1
    done
    for target in $(fuzz_targets); do # one that ended between two looks
        grep -qE 'number_of_executed_units' "build/fuzz/$(basename "$target").log" || found=1
    done
    [[ $count -gt 0 ]] || die "no fuzz targets were built"
    [[ $found == 0 ]] || die "a fuzz target found something: build/fuzz/found"
    echo "$count fuzz targets, no finding"
}

wheel() { # [install]
    rm -rf build/wheel
    mkdir -p build/wheel dist
    "$py" -m pip wheel --disable-pip-version-check -q --no-build-isolation --no-deps -w build/wheel .
    cp build/wheel/*.whl dist/
    echo "built $(ls build/wheel/*.whl)"
    if [[ ${1:-} == install ]]; then
        "$py" -m pip install --disable-pip-version-check -q --force-reinstall --no-deps build/wheel/*.whl
        touch build/wheel/installed
    fi
}

# A file of tests is one worker's. Workers share the cores, so threads of torch that wait must not spin.
spread=(-n "$jobs" --dist loadfile)
export OMP_WAIT_POLICY=passive

# The workers and the processes that they start share what torch's compiler made: its headers alone take 15 s to compile.
run_pytest() { # [quick]
    local status=0 what=(tests/python tests/compare tests/torch tests/engine tests/compat tests/cli tests/fault)
    # what needs neither a compiler of torch's nor a killed process
    [[ ${1:-} == quick ]] && what=(-m "not slow" tests/python tests/compare tests/cli)
    TORCHINDUCTOR_CACHE_DIR=$(mktemp -d "${TMPDIR:-/tmp}/tensortap-inductor-XXXXXX")
    export TORCHINDUCTOR_CACHE_DIR
    # shellcheck disable=SC2086
    "$py" -m pytest -q "${spread[@]}" --durations=25 --durations-min=2 "${what[@]}" ${PYTEST_ARGS:-} || status=$?
    rm -rf "$TORCHINDUCTOR_CACHE_DIR"
    return "$status"
}

# In an environment of its own, which is made here. Where MindSpore has no package for this machine the tests are not
# run, and the stage says why; any other failure is one.
mindspore_tests() {
    local python=.venv-mindspore/bin/python wheel reason
    wheel=$(ls build/wheel/*.whl 2>/dev/null) || die "mindspore: no wheel; run first: tools/stage.sh wheel"
    if ! reason=$(tools/setup.sh mindspore 2>&1); then
        if grep -qE 'No matching distribution|not a supported wheel|Could not find a version' <<<"$reason"; then
            echo "mindspore: SKIPPED, its package cannot be installed here: $(grep -E 'ERROR' <<<"$reason" | tail -n 1)"
            return 0
        fi
        echo "$reason" >&2
        die "mindspore: the environment could not be made"
    fi
    "$python" -m pip install --disable-pip-version-check -q --force-reinstall --no-deps "$wheel"
    # shellcheck disable=SC2086
    "$python" -m pytest -q "${spread[@]}" tests/mindspore ${PYTEST_ARGS:-}
}

# The core of the torch tests on a torch without the C interface. OLDTORCH_PYTHON: an interpreter that has one.
oldtorch() {
    local old=${OLDTORCH_PYTHON:-.venv-oldtorch/bin/python} status=0
    if [[ -z ${OLDTORCH_PYTHON:-} ]]; then
        tools/setup.sh oldtorch || status=$?
        [[ $status == 3 ]] && { echo "oldtorch: skipped, see above"; return; }
        [[ $status == 0 ]] || exit "$status"
        "$old" -m pip install --disable-pip-version-check -q --force-reinstall --no-deps build/wheel/*.whl
    fi
    "$old" -c 'import torch; print("oldtorch: torch", torch.__version__)'
    "$old" -m pytest -q -p no:cacheprovider tests/torch/test_modes.py -k "test_eager or TestSteps and aot_eager or
        static and aot_eager and TestMatrix or static and nested-grad and TestMatrix or nonstrict"
}

lint() {
    local paths=() dir
    for dir in python tests examples bench fuzz tools; do
        [[ -d $dir ]] && paths+=("$dir")
    done
    "$py" -m ruff check "${paths[@]}"
    "$py" -m mypy --strict -p tensortap
    "$py" -m pytest -q tests/python/test_dirs.py
    if [[ -e .clang-format ]]; then
        git ls-files '*.c' '*.h' | xargs clang-format --dry-run --Werror
    fi
}

coverage() {
    ctest_preset coverage
    lcov --quiet --capture --directory build/coverage --output-file build/coverage/all.info
    lcov --quiet --extract build/coverage/all.info "$PWD/src/*" --output-file build/coverage/coverage.info
    genhtml --quiet build/coverage/coverage.info --output-directory build/coverage/html
    lcov --summary build/coverage/coverage.info
}

aarch64() {
    cmake -S . -B build/aarch64 -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" -DTAP_KERNELS_ONLY=ON \
        -DTAP_TESTS=ON -DTAP_STRICT=ON >build/.configure-aarch64.log 2>&1 || { cat build/.configure-aarch64.log >&2; exit 1; }
    cmake --build build/aarch64 -j "$jobs"
    ctest --test-dir build/aarch64 --output-on-failure --no-tests=error -j "$jobs"
}

# What verify says against the truth, under every fault. STRESS_SEED=N: the same cases again; build/dev/stress case=N: one.
stress() { # SECONDS
    configure dev
    cmake --build --preset dev -j "$jobs"
    build/dev/stress seconds="$1" ${STRESS_SEED:+seed="$STRESS_SEED"}
}

# kill -9 at so many random moments of each layout, synchronous and not; nothing that had returned may be gone unsaid.
kill_moments() { # KILLS
    configure dev
    cmake --build --preset dev -j "$jobs" --target stress
    build/dev/stress kills="$1" ${STRESS_SEED:+seed="$STRESS_SEED"}
}

# The machine dies at any moment: what the disk may hold then is read back. The C tests look at one workload in many.
simulate() {
    configure dev
    cmake --build --preset dev -j "$jobs" --target simulate
    build/dev/simulate ${SIMULATE_ARGS:-}
}

install_test() {
    configure dev
    cmake --build --preset dev -j "$jobs"
    tests/install/run.sh build/dev
}

mkdir -p build
case ${1:-} in
    configure) configure "$2" ;;
    ctest) ctest_preset "$2" ;;
    fuzz) fuzz "$2" "${3:-}" ;;
    wheel) wheel "${2:-}" ;;
    pytest) run_pytest "${2:-}" ;;
    mindspore) mindspore_tests ;;
    oldtorch) oldtorch ;;
    lint) lint ;;
    coverage) coverage ;;
    aarch64) aarch64 ;;
    install) install_test ;;
    stress) stress "$2" ;;
    kill-moments) kill_moments "$2" ;;
    simulate) simulate ;;
    bench) for script in bench/record/run.sh bench/record.sh bench/run.sh; do
               [[ -x $script ]] && exec "$script"
           done
           die "bench: no benchmark script is there" ;;
    *) die "unknown stage ${1:-}" ;;
esac
