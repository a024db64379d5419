"""Names from outside are never interpreted as markup on a page."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from steadycast.compare import Condition, Verdict, write_page
from steadycast.folder import Folder
from steadycast.report import film, page, run_comparison
from steadycast.report.markup import Html, element, joined, text
from steadycast.report.page import write_report

from tests.face.made_up import make, make_seeds

EVIL = "'\"><zz onload=x()>&lt;</title></script><!--"
KEPT = ("kind", "world", "direction", "mode", "media", "cast", "codec", "limit", "unit", "fate", "type")
"""Keys whose values are our own words, which pages use. Any other text may come from outside."""


def poisoned(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: poisoned(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [poisoned(each, key) for each in value]
    return value + EVIL if isinstance(value, str) and key not in KEPT else value


def poison(folder: Path) -> Path:
    """Replace every text in the summary and the tables of a run, and the folder's name."""
    place = folder / "summary.json"
    summary = poisoned(json.loads(place.read_text()))
    summary["warnings"] = [EVIL]
    summary["expect"] = [{"that": f"flows.{EVIL}.share", "min": 0.1, "value": 0.2, "ok": True}]
    place.write_text(json.dumps(summary))
    for table in folder.glob("*.parquet"):
        frame = pl.read_parquet(table)
        texts = [name for name, kind in frame.schema.items() if kind == pl.String and name not in KEPT]
        frame.with_columns(pl.col(name) + EVIL for name in texts).write_parquet(table)
    return folder.rename(folder.with_name(folder.name + EVIL.replace("/", "")))


class Looked(HTMLParser):
    """Elements and attributes of a page."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.handlers: set[tuple[str, str | None]] = set()
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.handlers |= {(name, value) for name, value in attrs if name.startswith("on")}


def is_clean(content: str) -> None:
    seen = Looked(content)
    assert "zz" not in seen.tags
    assert seen.handlers <= {("onclick", "png(this)"), ("onclick", "svg(this)")}
    # The name was written, and is escaped.
    assert "&lt;zz onload" in content


@pytest.fixture
def run(tmp_path: Path) -> Path:
    make(tmp_path / "run", receivers=3, seconds=62)
    return poison(tmp_path / "run")


def test_a_report_has_no_element_of_a_names(run: Path) -> None:
    is_clean(write_report(run).read_text())


def test_a_comparison_has_no_element_of_a_names(run: Path, tmp_path: Path) -> None:
    make(tmp_path / "other", receivers=3, seconds=62, seed=2)
    runs = [run_comparison.read(place) for place in (run, poison(tmp_path / "other"))]
    condition = Condition.read("flows.tcp.share_of_fair<-10%")
    verdicts = [Verdict(EVIL, condition, 1.0, 2.0)]
    is_clean(write_page(runs, runs[0], verdicts, tmp_path / "c.html").read_text())


def test_a_page_of_several_seeds_has_no_element_of_a_names(tmp_path: Path) -> None:
    make_seeds(tmp_path / "seeds")
    (place,) = (tmp_path / "seeds").glob("*.json")
    place.write_text(json.dumps(poisoned(json.loads(place.read_text()))))
    is_clean(run_comparison.write_seeds_report(tmp_path / "seeds").read_text())


def test_a_film_and_its_folder_are_named_without_an_element(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {
        "receiver": EVIL, "from_s": 1.0, "to_s": 11.0, "slots": 250,
        "frames": {"ok": 250, "late": 0, "lost": 0, "undecodable": 0},
    }  # fmt: skip
    monkeypatch.setattr(Folder, "film", property(lambda _: (facts, b"film")))
    folders = [Folder.open(run)] * 2
    is_clean(page.section(*film.shown(folders)))
    monkeypatch.setattr(film, "_MOST", 0)
    is_clean(page.section(*film.shown(folders)))


TEXTS = st.text(alphabet="<>&\"'/=ab \n") | st.just(EVIL)


@given(content=TEXTS, value=TEXTS, more=TEXTS)
def test_whatever_stands_in_an_element_is_read_back_as_it_was(content: str, value: str, more: str) -> None:
    built = more + element("b", content, element("i", more), class_=value, data_name=value) + more
    read: list[tuple[str, Any]] = []
    parser = HTMLParser()
    parser.handle_data = lambda data: read.append(("data", data))  # type: ignore[method-assign]
    parser.handle_starttag = lambda tag, attrs: read.append((tag, attrs))  # type: ignore[method-assign]
    parser.feed(built)
    parser.close()
    assert [each for each in read if each[0] != "data"] == [
        ("b", [("class", value), ("data-name", value)]),
        ("i", []),
    ]
    assert "".join(data for kind, data in read if kind == "data") == more + content + more + more
    assert isinstance(built, Html)


def test_what_is_html_stays_so_where_it_is_joined_and_text_does_not() -> None:
    assert joined(["<a>", element("br"), 3], ", ") == "&lt;a&gt;, <br>, 3"
    assert text(Html("<b>")) == "<b>"
    assert "<" + Html("<b>") + "<" == "&lt;<b>&lt;"
    # A string that is built from HTML is not `Html`: it is escaped when it is put into a page.
    assert element("p", f"{element('b', 'x')}") == "<p>&lt;b&gt;x&lt;/b&gt;</p>"
