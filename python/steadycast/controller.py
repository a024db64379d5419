"""Finds and checks external controllers and switching rules, which are Python classes or programs."""

from __future__ import annotations

import difflib
import inspect
import math
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from steadycast.errors import UserError

SENDER = {
    "__init__": ("setup",),
    "on_report": ("report",),
    "rate_bps": (),
    "on_sent": ("packet",),
    "on_timer": ("now_s",),
    "next_wake_s": (),
    "on_leave": ("now_s", "receiver"),
    "why": (),
}
"""A controller's methods and their arguments."""
RECEIVER = {"__init__": ("setup",), "on_arrival": ("packet",), "report": ("slot",)}
"""Methods and arguments of a controller's nested class ``Receiver``, in the same form."""
SWITCHING = {"__init__": (), "choose": ("stream",)}
"""Methods and arguments of a switching rule, in the same form."""
REQUIRED = ("on_report", "rate_bps", "on_arrival", "report", "choose")


Guest = type | list[str]
"""An external controller or switching rule: a class, or the command of a program as a list of words."""


def is_outside(name: str) -> bool:
    """Whether a name refers to a class or a program, and not to a built-in controller or switching rule."""
    return name.startswith("exec:") or ".py:" in name


def found(name: str, folder: Path) -> Guest:
    """Find a controller. ``name`` is ``file.py:Class`` or ``exec:PROGRAM ARGUMENTS``.

    Paths in it are relative to ``folder``.
    """
    return _program(name, folder) if name.startswith("exec:") else checked(load(name, folder))


def found_switching(name: str, folder: Path) -> Guest:
    """Find a switching rule. ``name`` has the same forms as for `found`."""
    if name.startswith("exec:"):
        return _program(name, folder)
    each = load(name, folder)
    _check(each, SWITCHING)
    return each


def words(name: str) -> list[str]:
    """Split the command after ``exec:`` as a shell does."""
    try:
        return shlex.split(name.removeprefix("exec:"))
    except ValueError as error:
        raise UserError(name, f"not the words of a command: {error}".lower(), "close the quotes") from None


def _program(name: str, folder: Path) -> list[str]:
    """Return the command of a program. The program is searched for in ``folder``, the current folder and PATH.

    Other words are replaced by a full path if they contain a dot or slash and are the path of a file in ``folder``.
    """
    program, *rest = words(name)
    path = next((path for path in (folder / program, Path(program)) if path.is_file()), None)
    if path is None:
        if (known := shutil.which(program)) is None:
            remedy = "give its path, relative to the scenario or to where the command is typed, or install it"
            raise UserError(name, f'no such file: "{program}"', remedy)
        path = Path(known)
    check_program(name, path)
    if not has_interpreter(path):
        what = f"{path} is a text whose first line names no interpreter"
        raise UserError(name, what, 'begin it with a line such as "#!/usr/bin/env python3"')
    places = [(word, folder / word) for word in rest]
    whole = [str(place.resolve()) if ("/" in w or "." in w) and place.is_file() else w for w, place in places]
    return [str(path.absolute()), *whole]


def check_start(place: str, word: str) -> bool:
    """Check the program that is the first word of a command. Return whether the program exists."""
    found = shutil.which(word) or (word if Path(word).is_file() else None)
    if found is not None:
        check_program(place, Path(found))
    return found is not None


def check_program(place: str, path: Path) -> None:
    """Check that a file is executable, and that the interpreter in its first line exists.

    This check is needed because the system's error does not say that the interpreter is missing.
    """
    if not os.access(path, os.X_OK):
        raise UserError(
            place, f"{path} is not executable", f"chmod +x {path}, or name its interpreter before it"
        )
    head = _head(path)
    if not head.startswith(b"#!"):
        return
    line = head[2:].partition(b"\n")[0]
    if line.endswith(b"\r"):
        what = f"{path} has the line ends of Windows, so that the system finds no interpreter"
        raise UserError(place, what, f"save it with the line ends of Unix: sed -i 's/\\r$//' {path}")
    interpreter = Path(os.fsdecode(line.strip().partition(b" ")[0]))
    if not interpreter.is_file():
        what = f'the first line of {path} names an interpreter that does not exist: "{interpreter}"'
        raise UserError(place, what, "correct this line, or install the interpreter")


def has_interpreter(path: Path) -> bool:
    """Return whether a file is binary, or is a script with an interpreter in its first line."""
    head = _head(path)
    return head.startswith(b"#!") or b"\0" in head


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(256)
    except OSError:
        return b"\0"  # treat the file as binary, because a program need not be readable


def load(name: str, folder: Path) -> type:
    """Load the class that ``name`` specifies as ``file.py:Class``. The file's path is relative to ``folder``."""
    import importlib.util
    import linecache
    import traceback

    file, _, wanted = name.rpartition(":")
    path = folder / file
    if not path.is_file():
        path = Path(file)
    if not path.is_file():
        remedy = (
            'write "file.py:Class", with the path relative to the scenario or to where the command is typed'
        )
        raise UserError(name, "no such file", remedy)
    linecache.checkcache(str(path))
    spec = importlib.util.spec_from_file_location(f"steadycast_controller_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Add the module, because `inspect` uses this entry to find the source.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}", f"not Python: {error.msg}", "correct the file") from None
    except (Exception, SystemExit) as error:  # the user's file may raise any error
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        line = f":{frames[-1].lineno}" if frames else ""
        raise UserError(f"{path}{line}", f"{type(error).__name__}: {error}", "correct the file") from None
    found = getattr(module, wanted, None)
    if not isinstance(found, type):
        classes = [k for k, v in vars(module).items() if isinstance(v, type) and v.__module__ == spec.name]
        remedy = f"there are: {', '.join(classes)}" if classes else "define one"
        raise UserError(str(path), f'no class "{wanted}"', remedy)
    return found


def named(classes: Mapping[str, type]) -> list[str]:
    """Return the ``--set`` changes that select a controller class for each flow."""
    changes = []
    for flow, each in classes.items():
        file = _file(each) or "notebook.py"
        changes.append(
            f"flow.{flow}.controller={file if file.endswith('.py') else 'notebook.py'}:{each.__name__}"
        )
    return changes


def checked(each: type) -> type:
    """Check as much of a class as is possible without running it, and return the class."""
    _check(each, SENDER)
    every = getattr(each, "report_every_s", 0.1)
    if not isinstance(every, int | float) or not math.isfinite(every) or not 0.001 <= every <= 60:
        raise UserError(
            _place(each), f"{each.__qualname__}.report_every_s is {every!r}", "give seconds from 0.001 to 60"
        )
    receiver = getattr(each, "Receiver", None)
    if receiver is not None:
        if not isinstance(receiver, type):
            raise UserError(
                _place(each), f"{each.__qualname__}.Receiver is no class", "make it a nested class"
            )
        _check(receiver, RECEIVER)
    return each


def _check(each: type, methods: Mapping[str, tuple[str, ...]]) -> None:
    name = each.__qualname__
    for method, given in methods.items():
        found = getattr(each, method, None)
        if method == "__init__":
            _fits(each, method, given)
        elif found is None:
            # A similar name is certainly a mistake. If there is none, an `__init__` of the class may still set the
            # method.
            near = difflib.get_close_matches(
                method, [k for k in vars(each) if k not in methods], n=1, cutoff=0.75
            )
            if near:
                raise UserError(
                    _place(each, near[0]),
                    f'{name} has no method "{method}", but "{near[0]}"',
                    f'call it "{method}"',
                )
            if method in REQUIRED and "__init__" not in vars(each):
                raise UserError(
                    _place(each), f'{name} has no method "{method}"', f'add "def {_signature(method, given)}"'
                )
        elif not callable(found):
            raise UserError(
                _place(each), f"{name}.{method} is {found!r}", f'make it "def {_signature(method, given)}"'
            )
        else:
            _fits(each, method, given)
    for own in vars(each):
        if own.startswith("on_") and own not in methods:
            raise UserError(
                _place(each, own),
                f"{name}.{own}: no such method is ever called",
                f"there are: {', '.join(methods)}",
            )


def _fits(each: type, method: str, given: tuple[str, ...]) -> None:
    function = inspect.getattr_static(each, method)
    bound = isinstance(function, staticmethod)
    if isinstance(function, staticmethod | classmethod):
        function = function.__func__
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        kind = "async" if inspect.iscoroutinefunction(function) else "a generator"
        raise UserError(
            _place(each, method),
            f"{each.__qualname__}.{method} is {kind}: calling it does nothing",
            f'write "def {_signature(method, given)}", without {"async" if kind == "async" else "yield"}',
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a function that is not written in Python may have no signature
    if method == "__init__" and function is object.__init__:
        if not given:
            return
        raise UserError(
            _place(each), f"{each.__qualname__} has no __init__", 'add "def __init__(self, setup)"'
        )
    try:
        signature.bind(*(() if bound else ("self",)), *given)
    except TypeError as error:
        raise UserError(
            _place(each, method),
            f"{each.__qualname__}.{method}{signature}: {error}",
            f'write "def {_signature(method, given)}"',
        ) from None


def _signature(method: str, given: tuple[str, ...]) -> str:
    return f"{method}({', '.join(('self', *given))})"


def _file(each: type) -> str | None:
    try:
        return inspect.getsourcefile(each)
    except (TypeError, OSError):
        return None


def _place(each: type, method: str | None = None) -> str:
    code = (
        getattr(inspect.getattr_static(each, method, None), "__code__", None) if method is not None else None
    )
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    try:
        return f"{_file(each)}:{inspect.getsourcelines(each)[1]}"
    except (TypeError, OSError):
        return each.__qualname__
