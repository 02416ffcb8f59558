#!/bin/sh
# Builds base, tensor and the tests of the kernels for 64-bit ARM and runs them in qemu's user mode.
# CC and QEMU choose other tools; everything is made in a directory that is removed again.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
CC=${CC:-aarch64-linux-gnu-gcc}
QEMU=${QEMU:-qemu-aarch64}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

flags="-std=c11 -O2 -D_GNU_SOURCE -DTAP_NO_CMOCKA -ffp-contract=off -fno-math-errno -Wall -Wextra -Wshadow -Werror"
flags="$flags -I$root/include -I$root/src -I$root/tests"
for source in "$root"/src/base/*.c "$root"/src/tensor/*.c "$root"/src/tensor/kernels/scan_plain.c \
    "$root"/src/tensor/kernels/scan_neon.c; do
    optimise=
    case $source in */kernels/*) optimise=-O3 ;; esac
    $CC $flags $optimise -c "$source" -o "$work/$(basename "$source" .c).o"
done
for test in "$root"/tests/tensor/test_*.c; do
    name=$(basename "$test" .c)
    $CC $flags -static "$test" "$work"/*.o -lm -lpthread -o "$work/$name"
    echo "== $name"
    $QEMU "$work/$name"
done
