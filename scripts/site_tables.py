"""An extension of mkdocs for measured tables: a page for each CSV file of docs/data.

A forge displays `docs/data/NAME.csv` as a table. The site has a page with the table, the file, and its origin
(`NAME.toml`), sorted by a click on a heading. A paragraph that is only such a link becomes the table, if it is small.
"""

from __future__ import annotations

import csv
import html
import posixpath
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

DATA = Path(__file__).resolve().parent.parent / "docs" / "data"
SCRIPT = "assets/tables.js"
"""Path of scripts/site_tables.js on the site."""
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)*)data/([a-z0-9-]+)\.csv\)")
ALONE = re.compile(rf"^{LINK.pattern}\.?$", re.MULTILINE)
FEW = 40
"""Maximum number of rows of a table that is shown in its page."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make each page load the script that sorts tables."""
    if SCRIPT not in config.extra_javascript:
        config.extra_javascript.append(SCRIPT)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each table, outside the navigation and the search."""
    from mkdocs.structure.files import File, InclusionLevel

    script = Path(__file__).with_suffix(".js")
    files.append(File.generated(config, SCRIPT, abs_src_path=str(script)))
    for place in sorted(DATA.glob("*.csv")):
        new = File.generated(config, f"data/{place.stem}.md", content=page(place))
        new.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(new)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change links to tables, so that they lead to their pages.

    A small table replaces its link, if the link is a whole paragraph.
    """
    if page.file.src_uri.startswith("data/"):
        return markdown
    return LINK.sub(r"[\1](\2data/\3.md)", ALONE.sub(_shown, markdown))


def page(place: Path) -> str:
    """Return the page of a table."""
    told = origin(place)
    return (
        f"---\nsearch:\n  exclude: true\nhide: [toc]\n---\n\n# {told.get('title', place.stem)}\n\n"
        f"{source(told)} [{place.name}]({place.name}); a heading sorts the rows.\n\n{table(rows(place))}\n"
    )


def origin(place: Path) -> dict[str, str]:
    """Read the origin of a table."""
    beside = place.with_suffix(".toml")
    return tomllib.loads(beside.read_text(encoding="utf-8")) if beside.exists() else {}


def source(told: dict[str, str]) -> str:
    """Describe when a table was measured, at which commit, and with which command."""
    day, commit = told.get("measured"), told.get("commit")
    said = "Measured" + (f" {day}" if day else "") + (f" at commit {commit}" if commit else "")
    said += f" by `{told['command']}`" if "command" in told else ""
    said += f": {told['note']}" if "note" in told else ""
    return f"{said.rstrip('.')}."


def rows(place: Path) -> list[list[str]]:
    """Read a table, with its headings first."""
    with place.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def table(lines: list[list[str]]) -> str:
    """Return a table in HTML that the script can sort."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in lines[0])
    body = "\n".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in lines[1:]
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _shown(found: re.Match[str]) -> str:
    title, up, name = found.groups()
    place = DATA / f"{name}.csv"
    lines = rows(place)
    if len(lines) - 1 > FEW:
        return found[0]
    more = f"*{title}.* {source(origin(place))} [{name}.csv]({posixpath.join(up, 'data', name)}.md)"
    return f"{table(lines)}\n\n{more}"
