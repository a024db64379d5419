"""Checks the types of the arguments of public functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sized
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import PurePath
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from steadycast import hints as hint_words
from steadycast.errors import UserError, shortage

_NUMBERS = {int: Integral, float: Real}
P = ParamSpec("P")
R = TypeVar("R")


def typed(call: Callable[P, R]) -> Callable[P, R]:
    """Return a function that checks the types of its arguments and then calls ``call``.

    The function raises a `UserError` if an argument has a wrong type. Outside of a command, errors name arguments in
    place of their options.
    """
    signature = inspect.signature(call)
    hints = cache(lambda: get_type_hints(call))

    @wraps(call)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if (wrong := _unencodable(value)) is not None:
                raise UserError(f"{name} {value!a:.60}", *wrong)
            if not _fits(value, hint := hints().get(name, Any)):
                raise UserError(f"{name} {value!r:.60}", _misfit(value, hint), f"give {_written(hint)}")
        try:
            return call(*args, **kwargs)
        except UserError as error:
            if not hint_words.is_on_command_line():
                error.reworded(lambda text: hint_words.in_python(text, signature.parameters))
            raise
        except BaseException as error:
            if (lack := shortage(error)) is not None:
                raise lack from error
            raise

    return checked


def _fits(value: object, hint: Any) -> bool:
    """Whether a value has the given type.

    The elements of a collection are checked, too. The elements of an iterator are not, because it can be read only
    once.
    """
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Any, object):
        return True
    if kind in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if kind is Literal:
        return isinstance(value, str) and value in inner
    if not isinstance(value, _NUMBERS.get(kind, kind)) or (isinstance(value, bool) and kind is not bool):
        return False
    if kind is tuple:
        return len(value) == len(inner) and all(map(_fits, value, inner))
    if isinstance(value, Mapping):
        pairs = [*value, *value.values()]
        return len(inner) == 2 and all(_fits(each, inner[n >= len(value)]) for n, each in enumerate(pairs))
    if isinstance(value, Iterable) and inner:
        # Refuse a string where a list of strings is expected.
        return not isinstance(value, str | bytes) and (
            not isinstance(value, Sized) or all(_fits(each, inner[0]) for each in value)
        )
    return True


def _unencodable(value: object) -> tuple[str, str] | None:
    """Describe the first character of a text in ``value`` that no file name and no message can contain.

    Returns the problem and the remedy.
    """
    if isinstance(value, Mapping | list | tuple):
        parts = [*value, *value.values()] if isinstance(value, Mapping) else value
        return next(filter(None, map(_unencodable, parts)), None)
    if not isinstance(value, str | PurePath):
        return None
    text = str(value)
    if "\0" in text:
        return "it holds a byte of 0", "leave this byte out"
    try:
        # Python stores the bytes of a file name that are not UTF-8 as surrogates, which other libraries can't read.
        text.encode()
    except UnicodeEncodeError as error:
        problem = f"its character {error.start + 1}, {text[error.start]!a}, can't be encoded"
        return problem, "write the text in UTF-8; rename a file whose name is not in UTF-8"
    return None


def _misfit(value: object, hint: Any) -> str:
    """Describe the value or its first element that has a wrong type."""
    for each in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        kind, inner = get_origin(each) or each, get_args(each)
        if (
            not inner
            or kind in (Literal, tuple)
            or not isinstance(value, kind)
            or isinstance(value, str | bytes)
            or (isinstance(value, Mapping) and len(inner) != 2)
        ):
            continue
        if isinstance(value, Mapping):
            for key, held in value.items():
                if not _fits(key, inner[0]):
                    return f"its key {key!r:.60} is of the type {type(key).__name__}"
                if not _fits(held, inner[1]):
                    return f"its value for {key!r:.60} is of the type {type(held).__name__}"
        elif isinstance(value, Sized) and isinstance(value, Iterable):
            for n, held in enumerate(value):
                if not _fits(held, inner[0]):
                    return f"its element {n} is of the type {type(held).__name__}"
    return f"it is a {type(value).__name__}"


def _written(hint: Any) -> str:
    """Format a type as in Python code, but without module names."""
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    return re.sub(r"(\w+\.)+", "", text)
