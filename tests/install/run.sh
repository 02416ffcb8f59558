#!/usr/bin/env bash
# Installs a build into an empty prefix, moves it, and builds and runs a program against it in every way people do:
# pkg-config shared and static, as C++, and find_package. Argument: the build directory.
set -euo pipefail
build=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix" # an installed tree may be moved
prefix=$work/prefix
libdir=$(dirname "$(find "$prefix" -name 'libtensortap.so' | head -n 1)")
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
for file in "$libdir/libtensortap.a" "$prefix/bin/tensortap" "$libdir/cmake/tensortap/tensortapConfig.cmake"; do
    [[ -s $file ]] || { echo "install test: $file was not installed" >&2; exit 1; }
done
[[ $(ls "$prefix/include") == tensortap ]] && diff -r "$here/../../include/tensortap" "$prefix/include/tensortap" ||
    { echo "install test: the public headers and nothing else belong there" >&2; exit 1; }

check() { # NAME COMMAND...: build $work/NAME, run it, verify what it recorded with the installed command
    local name=$1
    shift
    "$@"
    "$work/$name" "$work/run-$name"
    "$prefix/bin/tensortap" verify "$work/run-$name" >/dev/null
    echo "install test: $name is fine"
}

read -ra flags <<<"$(pkg-config --cflags --libs tensortap)"
read -ra cflags <<<"$(pkg-config --cflags tensortap)"
read -ra static_libs <<<"$(pkg-config --static --libs-only-l tensortap | sed 's/-ltensortap//')"
check shared gcc -std=c11 -Wall -Wextra -Werror "$here/consumer.c" "${flags[@]}" -o "$work/shared"
check cxx g++ -x c++ -std=c++17 -Wall -Wextra -Werror "$here/consumer.c" "${flags[@]}" -o "$work/cxx"
check static gcc -std=c11 -Wall "${cflags[@]}" "$here/consumer.c" "$libdir/libtensortap.a" \
    "${static_libs[@]}" -o "$work/static"

package() {
    cmake -S "$here" -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log" &&
        cmake --build "$work/cmake" >>"$work/cmake.log" && cp "$work/cmake/consumer" "$work/package"
}
check package package

# the library gives away nothing but its own names
others=$(nm -D --defined-only "$libdir/libtensortap.so" | awk '{print $3}' | grep -Ev '^tap_|^TENSORTAP_' || true)
[[ -z $others ]] || { echo "install test: the library also exports: $others" >&2; exit 1; }
echo "install test: all passed against the installed copy"
