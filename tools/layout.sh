#!/usr/bin/env bash
# Lays the Python package out of a build with -DTAP_PYTHON=ON, for PYTHONPATH: quicker than a wheel while working.
#     tools/layout.sh BUILD_DIR OUT_DIR
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2/tensortap/_bin"
cp -r "$root"/python/tensortap/* "$2/tensortap/"
cp "$build"/_core.abi3.so "$2/tensortap/"
cp "$build"/tensortap "$2/tensortap/_bin/"
# what torch.compile(backend="tensortap") is found by
mkdir -p "$2/tensortap-0.dist-info"
printf 'Metadata-Version: 2.1\nName: tensortap\nVersion: 0\n' >"$2/tensortap-0.dist-info/METADATA"
printf '[torch_dynamo_backends]\ntensortap = tensortap._engine.backend:backend\n' >"$2/tensortap-0.dist-info/entry_points.txt"
