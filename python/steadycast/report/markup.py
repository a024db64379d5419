"""What pages are written with: whatever is not known to be HTML is escaped, so that no name of the outside is any."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_VOID = ("img", "br", "meta")
"""Elements without an end tag (HTML, section 13.1.2)."""


class Html(str):
    """Text that is HTML: what is joined to it is escaped, unless it is HTML, too."""

    __slots__ = ()

    def __add__(self, other: str) -> Html:
        return Html(str.__add__(self, text(other)))

    def __radd__(self, other: str) -> Html:
        return Html(str.__add__(text(other), self))


def text(content: object) -> Html:
    """Return content as HTML: as it is where it is HTML already, else escaped."""
    return content if isinstance(content, Html) else Html(html.escape(str(content)))


def plain(content: str) -> str:
    """Return content as plain text: of HTML what a reader sees."""
    return html.unescape(re.sub(r"<[^>]*>", "", content)) if isinstance(content, Html) else content


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Join parts, of which those that are no HTML are escaped."""
    return Html(between.join(text(part) for part in parts))


def element(tag: str, *content: object, **attributes: object) -> Html:
    """Build an element; content and values of attributes are escaped where they are no HTML.

    A name of an attribute may end in ``_`` (``class_``), and ``_`` within it stands for ``-``. `True` gives the name
    alone, `None` leaves the attribute out.
    """
    words = [tag]
    for name, value in attributes.items():
        if value is not None:
            word = name.rstrip("_").replace("_", "-")
            # A value is text in any case: HTML, too, has quotation marks.
            words.append(word if value is True else f'{word}="{html.escape(str(value))}"')
    start = f"<{' '.join(words)}>"
    return Html(start if tag in _VOID else f"{start}{joined(content)}</{tag}>")
