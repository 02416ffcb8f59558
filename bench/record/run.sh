#!/usr/bin/env bash
# The recorder's speed table. A line that is missed is shown as such; the exit code stays 0, since a busy machine is
# no bug: timings are never tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
"${VENV:-.venv}/bin/python" bench/record/table.py build/release || echo "not every line was met in this run"
