#!/usr/bin/env python3
"""Runs the Python tests on a build: run_tests.py BUILD/python [pytest arguments].

The interpreter is STOKER_PYTHON, else this one. Without pytest, NumPy or Pillow: exit 77 (skip).
"""

import os
import pathlib
import subprocess
import sys

python = os.environ.get("STOKER_PYTHON", sys.executable)
package = pathlib.Path(sys.argv[1]).resolve()
here = pathlib.Path(__file__).resolve().parent
try:
    found = (
        subprocess.run(
            [python, "-c", "import sys, pytest, numpy, PIL; sys.exit(sys.version_info < (3, 11))"],
            capture_output=True,
            timeout=120,
        ).returncode
        == 0
    )
except OSError:
    found = False
if not found:
    print(
        f"skip: '{python}' is not a Python >= 3.11 with pytest, numpy and pillow; "
        "set STOKER_PYTHON to one"
    )
    sys.exit(77)
environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(here), *sys.argv[2:]]
sys.exit(subprocess.run(command, env=environment, cwd=here).returncode)
