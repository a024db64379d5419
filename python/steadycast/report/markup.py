"""Builds HTML. Other text is escaped, so that names from files or the network can't inject any."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_VOID = ("img", "br", "meta")
"""Elements without an end tag (HTML, section 13.1.2)."""


class Html(str):
    """A string that is HTML; strings added to it are escaped, unless they are `Html` as well."""

    __slots__ = ()

    def __add__(self, other: str) -> Html:
        return Html(str.__add__(self, text(other)))

    def __radd__(self, other: str) -> Html:
        return Html(str.__add__(text(other), self))


def text(content: object) -> Html:
    """Return content as HTML: unchanged if it is `Html`, else escaped."""
    return content if isinstance(content, Html) else Html(html.escape(str(content)))


def plain(content: str) -> str:
    """Return the visible text of content that may be HTML."""
    return html.unescape(re.sub(r"<[^>]*>", "", content)) if isinstance(content, Html) else content


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Join parts; a part that is not `Html` is escaped."""
    return Html(between.join(text(part) for part in parts))


def element(tag: str, *content: object, **attributes: object) -> Html:
    """Build an element. Attribute values are escaped, and so is content that is not `Html`.

    Attribute names may end in ``_`` (``class_``); any other ``_`` becomes ``-``. An attribute with the value `True` is
    written without a value. An attribute with the value `None` is omitted.
    """
    words = [tag]
    for name, value in attributes.items():
        if value is not None:
            word = name.rstrip("_").replace("_", "-")
            # Even HTML may contain quotation marks.
            words.append(word if value is True else f'{word}="{html.escape(str(value))}"')
    start = f"<{' '.join(words)}>"
    return Html(start if tag in _VOID else f"{start}{joined(content)}</{tag}>")
