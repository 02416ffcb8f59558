#!/usr/bin/env bash
# Runs the stages of the test one after the other, goes on after a failure, and ends with one table: what ran, how long,
# how it ended. Exits non-zero when a stage failed. Logs are under build/test.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/test

case ${1:-all} in
    quick) stages=("ctest dev" "wheel install" "pytest quick") ;;
    all) stages=("ctest dev" "ctest asan" "ctest tsan" "stress 60" "aarch64" "fuzz 10 fixed" "wheel install" "lint" "pytest" "mindspore" "oldtorch"
        "install") ;;
    *) echo "test: all or quick, not $1" >&2; exit 2 ;;
esac

counts() { # LOG: what the stage itself says it ran
    grep -hE 'tests passed|tests failed|oldtorch: skipped|[0-9]+ passed|[0-9]+ failed|fuzz targets|installed copy|cases in' "$1" | tail -n 1 |
        sed 's/^=* *//; s/ *=*$//'
}

failed=0
lines=()
start=$SECONDS
for stage in "${stages[@]}"; do
    log="build/test/${stage// /-}.log"
    echo "==> $stage"
    began=$SECONDS
    # shellcheck disable=SC2086
    if tools/stage.sh $stage 2>&1 | tee "$log"; then
        result=ok
    else
        result=FAILED
        failed=$((failed + 1))
    fi
    lines+=("$(printf '%-14s %-7s %5d s  %s' "$stage" "$result" $((SECONDS - began)) "$(counts "$log")")")
done

echo
printf '%s\n' "${lines[@]}"
if [[ $failed == 0 ]]; then
    echo "test: all ${#stages[@]} stages passed in $((SECONDS - start)) s"
else
    echo "test: $failed of ${#stages[@]} stages FAILED; logs are in build/test"
    exit 1
fi
