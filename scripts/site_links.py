"""An extension of mkdocs: the site has a copy of each file outside docs/ that a page links to.

On a forge, `../scenarios/home.toml` leads to the file, but the site consists of docs/ alone. Such a file becomes part
of the site under `source/`: Markdown as a page outside the navigation, a folder as a list of its files.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs/"
SOURCE = "source/"
WORKER = "assets/worker.js"
"""Path of scripts/site_worker.js on the site."""
FOREIGN_WORKER = "https://unpkg.com/iframe-worker/shim"
"""The plugin `offline` would load this script from another server."""
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)((?:#[^)\s]*)?\))")
IMAGE = re.compile(r'(<img [^>]*src="([^"]+)"[^>]*>)')
STYLE = "<style>.md-typeset table img{min-width:15rem}</style>"
CODE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each file outside docs/ that a page links to, and the files that an added page links to."""
    from mkdocs.structure.files import File, InclusionLevel

    files.append(File.generated(config, WORKER, abs_src_path=str(ROOT / "scripts" / "site_worker.js")))
    waiting = [(DOCS + file.src_uri, file.content_string) for file in files.documentation_pages()]
    known = {place for place, _ in waiting}
    while waiting:
        place, text = waiting.pop()
        for target in targets(place, text):
            if target in known or target.startswith(DOCS) or not (ROOT / target).exists():
                continue
            known.add(target)
            uri, path = published(target), ROOT / target
            if path.is_dir() or path.suffix == ".md":
                content = folder(path) if path.is_dir() else path.read_text(encoding="utf-8")
                new = File.generated(config, uri, content=content)
                waiting.append((in_repository(uri), content))
            else:
                new = File.generated(config, uri, abs_src_path=str(path))
            new.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(new)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change links that leave docs/, so that they lead to the site's copy."""
    return relinked(markdown, page.file.src_uri)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make each picture a link to its file, so that it can be enlarged on a phone."""
    return IMAGE.sub(r'<a href="\2">\1</a>', content)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Use the site's copy of the search's worker script, and give pictures in tables a width.

    The search needs the copy if the site is opened from file://. The width keeps the pictures legible.
    """
    output = output.replace("</head>", f"{STYLE}</head>", 1)
    return output.replace(FOREIGN_WORKER, posixpath.relpath(WORKER, posixpath.dirname(page.url) or "."))


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """Make the changes of `on_post_page` in pages without Markdown, such as 404.html."""
    return output_content.replace(FOREIGN_WORKER, WORKER)


def relinked(text: str, uri: str) -> str:
    """Return a page's text with its links changed for the site. `uri` is the page's path on the site."""
    here = in_repository(uri)

    def one(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), found[2]))
        new = posixpath.relpath(published(target), posixpath.dirname(uri) or ".")
        return f"{found[1]}{new}{found[3]}"

    parts = CODE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(one, part) for part in parts)


def targets(place: str, text: str) -> list[str]:
    """Return the files of the repository that a page at `place` links to."""
    prose = "".join(part for part in CODE.split(text) if not part.startswith("```"))
    return [posixpath.normpath(posixpath.join(posixpath.dirname(place), m[2])) for m in LINK.finditer(prose)]


def published(target: str) -> str:
    """Return the path on the site of a file of the repository."""
    if target.startswith(DOCS):
        return target.removeprefix(DOCS)
    if target + "/" == DOCS:
        return "README.md"
    return f"{SOURCE}{target}/index.md" if (ROOT / target).is_dir() else SOURCE + target


def in_repository(uri: str) -> str:
    """Return the path in the repository of a page of the site."""
    if not uri.startswith(SOURCE):
        return DOCS + uri
    target = uri.removeprefix(SOURCE)
    return target if (ROOT / target).exists() else target.removesuffix("/index.md") + "/index.md"


def folder(path: Path) -> str:
    """Return a page that lists a folder's files."""
    names = sorted(each.name for each in path.iterdir() if each.is_file() and not each.name.startswith("."))
    return f"# {path.relative_to(ROOT)}\n\n" + "".join(f"- [{name}]({name})\n" for name in names)
