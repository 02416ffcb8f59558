"""python -m tensortap.compat.torchair.shim DIR: a wheel named torchair that gives programs tensortap's torchair."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import zipfile

from ... import _core

_INIT = '''"""torchair, as tensortap has it."""
from tensortap.compat import become

become(__name__)
'''


def write(directory: str) -> str:
    """Write the wheel; returns its path."""
    version = _core.version
    info = f"torchair-{version}.dist-info"
    files = {
        "torchair/__init__.py": _INIT,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torchair\nVersion: {version}\n"
        f"Summary: torchair for programs that run on tensortap\nRequires-Dist: tensortap\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tensortap\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(text.encode())}\n"
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"torchair-{version}-py3-none-any.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, text in files.items():
            wheel.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text)
    return path


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    print(write(sys.argv[1]))
