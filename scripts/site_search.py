"""An extension of the site's search: each row of a reference table is a separate result.

The theme's search ranks titles above text. So each row becomes an entry whose title is its first column, the name of
a key, a figure or an option, and which leads to the row.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PAGES = re.compile(r"reference/.*|record\.md|glossary\.md|exit-codes\.md")
"""Pages that users look things up in."""
FIRST = {
    "which-controller.md": 6,
    "tutorial.md": 4,
    **dict.fromkeys(("audio.md", "bufferbloat.md", "compare.md", "gpu.md", "lte.md", "wifi.md"), 6),
}
"""Pages for newcomers, with the search's weight."""
PART = re.compile(
    r'<h[1-6] id="(?P<id>[^"]+)">(?P<heading>.*?)<a |<tr>\n<td>(?P<name>.*?)</td>(?P<rest>.*?)</tr>',
    re.DOTALL,
)
TAG = re.compile(r"<[^>]*>")
WORKER = Path(__file__).with_suffix(".js")
NODE = re.compile(r"\b(\w+)=\1\+(\w+)\+(\w+)\.id\}return \1")
"""The code by which the search engine (lunr 2.3.9) names a node of its word tree.

The name is the letters and numbers of its children. Words that end in digits may get equal names, and false matches.
Commas make the names distinct.
"""
_entries: list[dict[str, str | int]] = []


@dataclass(frozen=True)
class Section:
    """Part of a page below a heading."""

    anchor: str
    title: str


def on_pre_build(config: MkDocsConfig) -> None:
    """Begin with no entries."""
    _entries.clear()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Give the pages for newcomers a higher rank."""
    if page.file.src_uri in FIRST:
        page.meta["search"] = {"boost": FIRST[page.file.src_uri]}
    return markdown


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Give each row of a reference table an anchor, and remember the row."""
    if PAGES.fullmatch(page.file.src_uri) is None:
        return content
    section = Section("", "")
    taken: set[str] = set()

    def one(part: re.Match[str]) -> str:
        nonlocal section
        if part["id"]:
            section = Section(part["id"], text(part["heading"]))
            return part[0]
        name = text(part["name"])
        anchor = f"{section.anchor}-{re.sub(r'[^a-z0-9_.]+', '-', name.lower()).strip('-')}"
        if anchor in taken or not name:
            return part[0]
        taken.add(anchor)
        about = f"<p>{html.escape(section.title)}: {html.escape(text(part['rest']))}</p>"
        _entries.append(
            {"location": f"{page.url}#{anchor}", "title": html.escape(name), "text": about, "boost": 8}
        )
        return part[0].replace("<tr>", f'<tr id="{anchor}">', 1)

    return PART.sub(one, content)


def on_post_build(config: MkDocsConfig) -> None:
    """Add the rows to the index, and add the site's script for queries to the search."""
    site = Path(config.site_dir)
    place = site / "search" / "search_index.json"
    index = json.loads(place.read_text(encoding="utf-8"))
    index["docs"] += _entries
    place.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    for worker in (site / "assets" / "javascripts" / "workers").glob("search.*.js"):
        engine, changed = NODE.subn(r'\1=\1+\2+","+\3.id+";"}return \1', worker.read_text(encoding="utf-8"))
        if changed != 1:
            raise ValueError(f"{worker.name}: the search engine names its nodes in another way; see NODE")
        worker.write_text(WORKER.read_text(encoding="utf-8") + engine, encoding="utf-8")


def text(part: str) -> str:
    """Return the text of a part of a page, without tags."""
    return html.unescape(" ".join(TAG.sub(" ", part).split()))
