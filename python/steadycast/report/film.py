"""Makes films of the worst ten seconds of runs, and puts them on a report page."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from steadycast.errors import UserError
from steadycast.folder import Folder, Json, add_film, number
from steadycast.progress import Progress
from steadycast.report import say
from steadycast.report.markup import Html, element, joined

_MOST = 2_000_000
"""Maximum total size of the films on one page, in bytes."""
_ELSEWHERE = "with its film, too, this page would be too large; its report shows it, and its file is in"


def add(folder: Folder, progress: Progress) -> None:
    """Create the film of the worst ten seconds of a run that exists already. The film is put into the run's folder."""
    from steadycast.film import worst_seconds
    from steadycast.viewing import Record

    seen = Record.of(folder, progress)
    made = worst_seconds(seen, folder.summary["flows"], lambda done, of: progress("filming", done, of))
    if made is None:
        raise UserError(
            str(folder.path),
            "no film of the run is small enough, or no receiver saw a picture",
            "leave --film out",
        )
    add_film(folder, *made)


def shown(folders: Sequence[Folder]) -> tuple[str, Html]:
    """Return a heading and the films of these runs. Without films, the HTML is empty.

    If the total size of the films exceeds `_MOST`, they are encoded again. All of them get the same maximum size then.
    If a film cannot be made small enough, the page shows the path of its file instead.
    """
    films = [(folder, *film) for folder in folders if (film := folder.film) is not None]
    # Multiply by 4/3, because Base64 encodes three bytes as four characters.
    fits = sum(len(data) for _, _, data in films) * 4 // 3 <= _MOST
    if not fits:
        from steadycast.film import smaller  # imported here, because it loads the codecs
    parts = []
    for folder, facts, data in films:
        small = data if fits else smaller(data, _MOST * 3 // 4 // len(films))
        name = folder.name if len(folders) > 1 else ""
        if small is None:
            path = element("code", folder.path / "film.webm")
            parts.append(element("p", element("b", name), f": {_ELSEWHERE} ", path, ".", class_="small"))
            continue
        parts.append(_figure(folder, name, facts, base64.b64encode(small).decode("ascii")))
    return "The worst ten seconds", joined(parts)


def _figure(folder: Folder, name: str, facts: Json, code: str) -> Html:
    lead = element("b", name) + ": " if name else ""
    viewer = facts["receiver"]
    span = f"seconds {float(facts['from_s']):.1f} to {float(facts['to_s']):.1f}"
    label = f"{name} ".lstrip() + f"film: the original, and beside it what {viewer} saw in {span}"
    source = f"data:video/webm;base64,{code}"
    video = element(
        "video", controls=True, muted=True, playsinline=True, preload="metadata", aria_label=label, src=source
    )
    warm = number(folder.summary.get("from_s")) or 0.0
    before = f" (no table counts what is before {say.seconds(warm)})" if float(facts["from_s"]) < warm else ""
    words = (
        f"Left the original, right what {viewer} saw in {span}{before}: {_fates(facts)}. "
        "A red frame stands around a picture that belongs to another moment."
    )
    command = element("code", f"steadycast report --film {folder.path}")
    return element(
        "figure", video, element("figcaption", element("span", lead, words), command), class_="film"
    )


def _fates(facts: Json) -> str:
    frames = facts["frames"]
    told = [f"of {say.count(facts['slots'])} frames {say.count(frames['ok'])} were shown whole and in time"]
    told += [
        f"{say.count(frames[fate])} {words}"
        for fate, words in (
            ("late", "came late"),
            ("lost", "were lost"),
            ("skipped", "were skipped by the sender"),
            ("undecodable", "lacked another one"),
        )
        if frames.get(fate)
    ]
    return ", ".join(told)
