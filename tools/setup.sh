#!/usr/bin/env bash
# Makes this machine able to build and test: system packages, .venv, pinned Python packages. Run by make; does nothing
# when a stamp under .setup says that nothing changed. With an argument: that step only; the last lines name them.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=${VENV:-.venv}
mkdir -p .setup

# the command that installs each thing, for Debian and Fedora families
apt_packages=(gcc g++ libc6-dev cmake ninja-build pkg-config libsqlite3-dev libdeflate-dev libjson-c-dev libcmocka-dev
    clang qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross lcov)
dnf_packages=(gcc gcc-c++ cmake ninja-build pkgconf-pkg-config sqlite-devel libdeflate-devel json-c-devel
    libcmocka-devel clang compiler-rt qemu-user gcc-aarch64-linux-gnu lcov python3-devel)

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }
hash_of() { cat "$@" | sha256sum | cut -c1-16; }

check_python() {
    command -v "$python" >/dev/null || die "python3 was not found; install it, or run: make PYTHON=/path/to/python3"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        die "$python is older than 3.10; run: make PYTHON=/path/to/a/newer/python3"
}

has_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }
has_python_headers() {
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

# The sanitizer and fuzzer runtimes are a package of their own, named after clang's version, on newer releases.
clang_runtime() {
    local version
    version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
    [[ -n $version ]] && apt-cache show "libclang-rt-$version-dev" >/dev/null 2>&1 && echo "libclang-rt-$version-dev"
    return 0
}

missing_apt() {
    local wanted=("${apt_packages[@]}" "$@") package
    has_venv || wanted+=(python3-venv)
    has_python_headers || wanted+=(python3-dev)
    for package in "${wanted[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
    done
}

as_root() {
    if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi
}

setup_apt() {
    local missing runtime
    runtime=$(clang_runtime)
    mapfile -t missing < <(missing_apt ${runtime:+"$runtime"})
    [[ ${#missing[@]} == 0 ]] && return
    if ! as_root true 2>/dev/null; then
        say "system packages are missing and this user is not root. Run this, then make again:"
        echo "    sudo apt-get update && sudo apt-get install -y ${missing[*]}" >&2
        exit 1
    fi
    say "installing ${missing[*]}"
    # a fresh machine has no package lists yet; an old one may have stale ones
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq || say "apt-get update failed; going on with old lists"
    runtime=$(clang_runtime)
    mapfile -t missing < <(missing_apt ${runtime:+"$runtime"})
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# Elsewhere we look for what the build needs and name the command; installing is left to the person.
setup_other() {
    local tool missing=()
    for tool in gcc g++ cmake ninja pkg-config clang qemu-aarch64 aarch64-linux-gnu-gcc; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    for tool in sqlite3 libdeflate json-c cmocka; do
        pkg-config --exists "$tool" 2>/dev/null || missing+=("$tool")
    done
    has_venv || missing+=("python venv")
    has_python_headers || missing+=("Python.h")
    [[ ${#missing[@]} == 0 ]] && return
    say "missing: ${missing[*]}. Run this, then make again:"
    echo "    sudo dnf install -y ${dnf_packages[*]}" >&2
    exit 1
}

setup_system() {
    check_python
    local stamp
    stamp=".setup/system-$(hash_of tools/setup.sh)-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    [[ -e $stamp ]] && command -v cmake >/dev/null && command -v ninja >/dev/null && return
    if command -v apt-get >/dev/null; then setup_apt; else setup_other; fi
    rm -f .setup/system-*
    touch "$stamp"
}

# venv REQUIREMENTS NAME
setup_venv() {
    local stamp
    stamp=".setup/$3-$(hash_of "$2" tools/setup.sh)"
    [[ -e $stamp && -x $1/bin/python ]] && "$1/bin/python" -c '' 2>/dev/null && return
    check_python
    [[ -x $1/bin/python ]] && "$1/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$1"
    say "installing the packages of $2 into $1"
    "$1/bin/python" -m pip install --disable-pip-version-check -q -r "$2" ||
        die "pip failed; $2 says what is needed (for torch, its CPU build is enough)"
    rm -f ".setup/$3-"*
    touch "$stamp"
}

# Exits 3, with the reason, where the older torch cannot be had.
setup_oldtorch() {
    local wanted
    wanted=$(sed -n 's/^\(torch==[^ ;]*\).*/\1/p' tools/requirements-oldtorch.txt)
    [[ -x .venv-oldtorch/bin/python ]] || "$python" -m venv --clear .venv-oldtorch
    if ! .venv-oldtorch/bin/python -c 'import torch' 2>/dev/null &&
        ! .venv-oldtorch/bin/python -m pip download --disable-pip-version-check -q --no-deps -d .setup/oldtorch "$wanted" \
            >.setup/oldtorch.log 2>&1; then
        say "$wanted is not to be had from pip's index here; the tests on an older torch are left out"
        exit 3
    fi
    PIP_FIND_LINKS="$PWD/.setup/oldtorch ${PIP_FIND_LINKS:-}" setup_venv .venv-oldtorch tools/requirements-oldtorch.txt oldtorch
    rm -rf .setup/oldtorch
}

case ${1:-all} in
    oldtorch) setup_oldtorch ;;
    system) setup_system ;;
    python) setup_venv "$venv" tools/requirements.txt python ;;
    bench) setup_venv .venv-bench tools/requirements-bench.txt bench ;;
    mindspore) setup_venv .venv-mindspore tools/requirements-mindspore.txt mindspore ;;
    mindspore-bench) setup_venv .venv-mindspore-bench tools/requirements-mindspore-bench.txt mindspore-bench ;;
    all) setup_system && setup_venv "$venv" tools/requirements.txt python ;;
    *) die "unknown step $1; one of: system python bench mindspore mindspore-bench oldtorch all" ;;
esac
