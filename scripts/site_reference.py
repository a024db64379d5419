"""An extension of mkdocs: generates the references, the exit codes, and the notebooks' page.

A checkout has a stub for each of these pages, so that links work on a forge. The site has the full page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import notebooks

import docs

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the stubs by the generated pages."""
    from mkdocs.structure.files import File

    shown, pictures = notebooks.page()
    for place, content in pictures.items():
        files.append(File.generated(config, place, content=content))
    for name, text in {**docs.pages(), "notebooks": shown}.items():
        old = files.get_file_from_path(f"{name}.md")
        if old is not None:
            files.remove(old)
        files.append(File.generated(config, f"{name}.md", content=text))
    return files
