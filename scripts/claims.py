"""The claims that take long: tests that `make test` has no time for.

Rust tests marked ``#[ignore = "claim: …"]``, Python tests marked ``@pytest.mark.claim``, and the soak.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tools

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run them; exit code 1 when one does not hold."""
    environment = {**os.environ, "PATH": tools.path_with_cargo()}
    cargo = ["cargo", "test", "--workspace", "--exclude", "steadycast-python", "--locked", "--release"]
    rust = subprocess.run([*cargo, "--", "--ignored"], cwd=ROOT, check=False, env=environment).returncode
    words = [sys.executable, "-m", "pytest", "-m", "claim"]
    python = subprocess.run(words, cwd=ROOT, check=False).returncode
    soak = subprocess.run([sys.executable, "-m", "validation.soak"], cwd=ROOT, check=False).returncode
    return 1 if rust != 0 or soak != 0 or python not in (0, 5) else 0  # 5: there are none


if __name__ == "__main__":
    sys.exit(main())
