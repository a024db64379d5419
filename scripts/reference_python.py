"""Generates the reference page of the Python interface from signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

NAMES = (
    *("run", "run_seeds", "Run", "sweep", "Sweep", "emulate", "Emulated", "agree", "controllers"),
    *("Sender", "SenderStatus", "PeerStatus", "Receiver", "ReceivedFrame", "ReceiverStatus"),
    *("UserError", "MissingError", "UnwrittenError"),
)
"""The names that have their own entry.

Scenario classes are described by the keys of files; the classes that a controller receives have a separate page.
"""
_INNER = ("Run.fill", "Run.held")
"""Public methods that only reports and folders call. They are not in the reference."""
_WIDTH = 90
"""A longer signature has one line per argument."""
_SECTION = re.compile(r"^(Args|Returns|Raises):\n", re.MULTILINE)
_ITEM = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def python_page() -> str:
    """Write the page of the names in `import steadycast as sc`."""
    import steadycast

    lines = [
        "# Python",
        "",
        "The public names of `import steadycast as sc`, from their signatures and docstrings; `help(sc.run)`",
        "prints the same. [How to use it](../python.md). The classes of a scenario (`sc.Scenario`, `sc.Flow`, …) have",
        "the [keys of scenario files](scenario.md); the interface of a controller is in",
        "[a controller in Python](../python-controller.md).",
    ]
    for name in NAMES:
        lines += ["", f"## `sc.{name}`", "", *_entry(name, getattr(steadycast, name))]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _entry(name: str, what: Any) -> Iterator[str]:
    if not inspect.isclass(what):
        yield from _called(name, what)
        return
    if is_dataclass(what) or issubclass(what, Exception):
        yield from _told(what)
    else:
        yield from _called(name, what)
    attributes = [found for each in _ours(what) for found in _attributes(each)]
    if attributes:
        yield from ("", "| attribute | type | what it is |", "|---|---|---|")
        yield from (f"| `{key}` | `{_cell(kind)}` | {_cell(about)} |" for key, kind, about in attributes)
    methods = [
        (key, each)
        for key in dict.fromkeys(key for each in _ours(what) for key in vars(each))
        if inspect.isfunction(each := inspect.getattr_static(what, key))
        and key[0] != "_"
        and f"{name}.{key}" not in _INNER
    ]
    for key, each in methods:
        yield from ("", f"### `{name}.{key}`", "", *_called(f"{name}.{key}", each))


def _ours(what: type) -> list[type]:
    """Return a class and its base classes in the package, except those with a separate entry."""
    below = [each for each in what.__mro__[1:] if each.__module__.startswith("steadycast.")]
    return [what, *(each for each in below if each.__name__ not in NAMES)]


def _called(name: str, what: Any) -> Iterator[str]:
    signature = inspect.signature(what)
    returns = signature.return_annotation
    arrow = "" if inspect.isclass(what) or returns in (inspect.Signature.empty, "None") else f" -> {returns}"
    parts, named = [], False
    for each in signature.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not named:
            named = True
            parts.append("*")
        default = "" if each.default is each.empty else f" = {each.default!r}"
        parts.append(f"{each.name}: {each.annotation}{default}")
    text = f"{name}({', '.join(parts)}){arrow}"
    if len(text) > _WIDTH:
        text = f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){arrow}"
    yield from ("```", text, "```", "")
    yield from _told(what)


def _told(what: Any) -> Iterator[str]:
    first, *sections = _SECTION.split(inspect.getdoc(what) or "")
    yield _plain(first.strip())
    for kind, text in zip(sections[::2], sections[1::2], strict=True):
        items = _ITEM.findall(text)
        if kind == "Args":
            yield from ("", "| argument | what it is |", "|---|---|")
            yield from (f"| `{key}` | {_cell(_plain(about))} |" for key, about in items)
        elif items:
            yield ""
            yield from (f"- raises `{key}`: {_cell(_plain(about)).rstrip('.')}" for key, about in items)
        else:
            yield from ("", _plain(text.strip()))


def _attributes(what: type) -> Iterator[tuple[str, str, str]]:
    """Yield fields and properties, each with its type and its docstring."""
    tree = ast.parse(inspect.getsource(what)).body[0]
    assert isinstance(tree, ast.ClassDef)
    for each, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            text = after.value if isinstance(after, ast.Expr) else None
            about = text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
            key, kind = each.target.id, ast.unparse(each.annotation)
        elif isinstance(each, ast.FunctionDef) and any(
            isinstance(made, ast.Name) and made.id == "property" for made in each.decorator_list
        ):
            key, kind = each.name, ast.unparse(each.returns) if each.returns else ""
            about = _SECTION.split(ast.get_docstring(each) or "")[0].strip()
        else:
            continue
        if key[0] != "_":
            yield key, kind, _plain(about)


def _plain(text: str) -> str:
    return text.replace("``", "`")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
