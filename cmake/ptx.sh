#!/usr/bin/env bash
# Makes src/device/kernels/tap_kernel.ptx, the text that the driver compiles for the device it finds. sm_70 and PTX 7.0, which every
# driver from CUDA 11 on takes. With --check: is the file what this would make? Needs clang 14 with the target nvptx64 (another
# version writes other text); exits 77 and says so where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
clang=${CLANG:-clang}
version=$("$clang" --version 2>/dev/null | sed -n 's/.*clang version \([0-9]*\).*/\1/p' | head -n 1) || true
if [[ $version != 14 ]] || ! "$clang" --print-targets | grep -q nvptx64; then
    echo "the PTX text cannot be made here: $clang is not clang 14 with nvptx64"
    exit 77
fi

make_ptx() {
    "$clang" -x cuda -std=c++14 --cuda-device-only --cuda-gpu-arch=sm_70 -nocudainc -nocudalib -Xclang -target-feature -Xclang +ptx70 \
        -Iinclude -Isrc -O3 -ffp-contract=off -fno-math-errno -Wall -Wno-unknown-cuda-version -S -o - src/device/kernels/tap_kernel.c |
        sed '/^[[:space:]]*\/\//d'
}

file=src/device/kernels/tap_kernel.ptx
if [[ ${1:-} == --check ]]; then
    make_ptx | cmp -s - "$file" || { echo "$file is old; run: cmake/ptx.sh"; exit 1; }
else
    make_ptx >"$file"
fi
