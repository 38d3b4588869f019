"""Installs what requirements.txt pins into packages/, which PYTHONPATH points to.

A directory instead of a virtual environment, because it contains no absolute paths, so that a clone of the app works.
Debian's Python has no pip: there a temporary virtual environment provides it. If that is not possible, the last line
of output names the package to install.
"""

import os
import subprocess
import sys
import tempfile

TARGET = "packages"
INSTALL = ["-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir", "--no-deps", "--only-binary=:all:",
           "--require-hashes", "--requirement=requirements.txt", "--target=" + TARGET, "--upgrade"]


def has_pip(python):
    """Tells whether this Python brings a pip that runs."""
    return subprocess.run([python, "-m", "pip", "--version"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def install(python):
    """Exits with pip's own status."""
    sys.exit(subprocess.run([python, *INSTALL], check=False).returncode)


if sys.version_info < (3, 9):
    sys.exit("Radicale needs Python 3.9 or later; python3 is %d.%d." % sys.version_info[:2])
if has_pip(sys.executable):
    install(sys.executable)
with tempfile.TemporaryDirectory() as lent:
    venv = subprocess.run([sys.executable, "-m", "venv", lent], capture_output=True, text=True, check=False)
    if venv.returncode == 0:
        install(os.path.join(lent, "bin", "python"))
sys.exit("This Python has neither pip nor venv: install one of them, such as with `apt-get install python3-venv`.")
