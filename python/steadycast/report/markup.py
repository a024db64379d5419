"""Builds HTML. All other text is escaped, so that names from files or from the network can't inject HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_VOID = ("img", "br", "meta")
"""Elements that have no end tag (HTML, section 13.1.2)."""


class Html(str):
    """A string that contains HTML.

    If another string is added to it, that string is escaped unless it is `Html`, too.
    """

    __slots__ = ()

    def __add__(self, other: str) -> Html:
        return Html(str.__add__(self, text(other)))

    def __radd__(self, other: str) -> Html:
        return Html(str.__add__(text(other), self))


def text(content: object) -> Html:
    """Return content as HTML. Content that is `Html` is unchanged, other content is escaped."""
    return content if isinstance(content, Html) else Html(html.escape(str(content)))


def plain(content: str) -> str:
    """Return the visible text of content, which may be HTML."""
    return html.unescape(re.sub(r"<[^>]*>", "", content)) if isinstance(content, Html) else content


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Join parts to HTML. Parts that are not `Html` are escaped."""
    return Html(between.join(text(part) for part in parts))


def element(tag: str, *content: object, **attributes: object) -> Html:
    """Build an HTML element. Attribute values are escaped, and so is content that is not `Html`.

    An attribute's name may end in ``_``, as in ``class_``. Any other ``_`` in it becomes ``-``. An attribute whose
    value is `True` is written without a value. An attribute whose value is `None` is omitted.
    """
    words = [tag]
    for name, value in attributes.items():
        if value is not None:
            word = name.rstrip("_").replace("_", "-")
            # Escape the value even if it is `Html`, because it may contain quotation marks.
            words.append(word if value is True else f'{word}="{html.escape(str(value))}"')
    start = f"<{' '.join(words)}>"
    return Html(start if tag in _VOID else f"{start}{joined(content)}</{tag}>")
