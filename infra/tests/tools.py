"""What the tests need from outside: each tool is used where it is, skipped aloud elsewhere, and missed where promised."""

import importlib
import os
import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMISED = os.environ.get("OC_PROMISED", "").split()


def missing(tool, reason):
    if tool in PROMISED:
        raise AssertionError(f"{tool} was promised and is missing: {reason}")
    raise unittest.SkipTest(f"{tool}: {reason}")


def module(tool, name):
    """Returns a Python module."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing(tool, f"{error}; `./dev test` installs it")


def program(tool, name):
    """Returns the path of a program."""
    here = pathlib.Path(os.sys.executable).parent / name
    path = str(here) if here.is_file() else shutil.which(name)
    return path or missing(tool, f"there is no {name} on the PATH")


def executable():
    """Returns the executable of the service."""
    path = os.environ.get("OC_BIN")
    return path or missing("executable", "OC_BIN is not set; `./dev test` sets it")


_settings = {}


def settings(*role):
    """Returns the flags and the variables that a subcommand has."""
    if role not in _settings:
        command = [executable(), *role, "--help"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        flags = set(re.findall(r"^\s+(?:-\w, )?(--[a-z][a-z-]*)", text, re.MULTILINE))
        _settings[role] = flags, set(re.findall(r"\[env:\s+([A-Z_]+)", text))
    return _settings[role]


def check_settings(test, role, arguments, variables):
    """Fails for a flag or a variable that the executable would not know."""
    flags, known = settings(*role)
    for argument in arguments:
        if argument.startswith("--"):
            test.assertIn(argument.split("=")[0], flags, f"{' '.join(role)} has no such flag")
    for name in variables:
        if name.startswith("OPENCODE_CLOUD_") and not name.startswith("OPENCODE_CLOUD_LOG"):
            test.assertIn(name.removesuffix("_FILE"), known, f"{' '.join(role)} reads no {name}")
