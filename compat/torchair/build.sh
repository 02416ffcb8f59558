#!/usr/bin/env bash
# Builds, installs and tests from one command line.
set -euo pipefail
cd "$(dirname "$0")"

usage() {
    cat <<'TEXT'
usage: ./build.sh [-h] [-c] [-i] [-u] [-s] [-j[n]] [-v] [-g path]

  -h        print this help
  -c        build the wheel, in output/
  -i        build and install it
  -u        run the declared cases of a few converters
  -s        run the declared cases of every converter
  -j[n]     build with n jobs, 8 by default
  -v        show the commands
  -g path   taken for the compiler's place; nothing is compiled here
TEXT
}

compile=no install=no unit=no system=no jobs=8 verbose=()
[[ $# -eq 0 ]] && compile=yes
while getopts "hciusj::vg:" option; do
    case $option in
        h) usage; exit 0 ;;
        c) compile=yes ;;
        i) compile=yes install=yes ;;
        u) unit=yes ;;
        s) system=yes ;;
        j) jobs=${OPTARG:-8} ;;
        v) verbose=(VERBOSE=1) ;;
        g) ;;
        *) usage >&2; exit 2 ;;
    esac
done

[[ -f tools/python_path ]] || TARGET_PYTHON_PATH=${TARGET_PYTHON_PATH:-$(command -v python3)} NO_ASCEND_SDK=1 ./configure
python=$(cat tools/python_path)

if [[ $compile == yes ]]; then
    mkdir -p build output
    (cd build && cmake .. >/dev/null && make torchair "-j$jobs" ${verbose[@]+"${verbose[@]}"})
    cp build/dist/dist/torchair-*.whl output/
    echo "built $(ls output/torchair-*.whl)"
fi
if [[ $install == yes ]]; then
    "$python" -m pip install --disable-pip-version-check --force-reinstall --no-deps output/torchair-*.whl
fi
if [[ $unit == yes ]]; then
    "$python" smoke/converter_test.py aten.add
fi
if [[ $system == yes ]]; then
    "$python" smoke/converter_test.py
fi
