#!/usr/bin/env bash
# Everything worth checking on a machine with a GPU, in one call: tests/cuda/run_all.sh WHEEL [FOLDER]. The wheel is unpacked beside the torch that is
# there; FOLDER has test_program, test_drain and bench_kernels of a build. Goes on after a failure; says at the end what failed.
set -uo pipefail
cd "$(dirname "$0")/../.."
wheel=${1:?a wheel of tensortap}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])' "$wheel" "$place"
chmod +x "$place"/tensortap/_bin/* 2>/dev/null
export PYTHONPATH=$place PYTHONUNBUFFERED=1
failed=()

run() { # NAME COMMAND...
    echo "== $1"
    timeout 240 "${@:2}"
    local status=$?
    [[ $status == 0 ]] || failed+=("$1 (status $status)")
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
[[ -z ${2:-} ]] || run kernels "$2/test_program" gpu
[[ -z ${2:-} ]] || run drain "$2/test_drain" gpu
for script in tests/cuda/check_*.py; do
    run "$script" python3 "$script"
done
[[ -z ${2:-} ]] || run bench "$2/bench_kernels"
[[ ${#failed[@]} == 0 ]] && echo "all is well" || printf 'FAILED: %s\n' "${failed[@]}"
exit "$((${#failed[@]} > 0))"
