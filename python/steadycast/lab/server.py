"""The lab's server, which serves a page, its files, and the page's requests.

It listens only on the loopback interface, serves a fixed list of files, and writes only to a temporary folder. Each
request must carry a token from the printed address, because other web pages do not have this token.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import threading
import tomllib
import webbrowser
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from steadycast import style
from steadycast.clips import files as named_clips
from steadycast.clips import in_folder
from steadycast.controllers import registry
from steadycast.errors import MissingError, Problems, UserError
from steadycast.film import FORMATS
from steadycast.lab import recorded
from steadycast.lab import text as scenario_text
from steadycast.lab.text import Base, checked, edited, edits_of, first_video, knobs
from steadycast.lab.watch import Watched
from steadycast.lab.work import Board, CancelledError, Setup, Task
from steadycast.report import choice
from steadycast.workers import LostError, Workers

try:
    import tomlkit  # noqa: F401
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from steadycast import web
except ImportError as error:
    name = (error.name or "starlette").partition(".")[0]
    raise MissingError.package("lab", name, "steadycast[lab]") from None

Json = dict[str, Any]

PORT = 8765
_PORTS = 20
"""Number of ports that are tried if the user gives no port."""
_WORKERS = 2
_PAGES = Board.PLACES // 2
"""The largest number of browser tabs. Each tab has two places on the `Board`: one for runs, one for films."""
_NEAR_S = 600.0
"""Sessions are shown on one time axis if they begin within this time of each other, in seconds."""
_MOST_BODY = 4 * scenario_text.MOST_TEXT
_FILES = {
    "/": ("steadycast.lab", "lab.html"),
    "/lab.js": ("steadycast.lab", "lab.js"),
    "/lab.css": ("steadycast.lab", "lab.css"),
    "/shared.js": ("steadycast.lab", "shared.js"),
    "/uPlot.js": ("steadycast.lab", "uPlot.js"),
    "/uPlot.css": ("steadycast.lab", "uPlot.css"),
}


@dataclass(frozen=True)
class Asked:
    """A request from the page. Its structure has been checked."""

    tab: str
    base: Base
    text: str
    edits: list[tuple[scenario_text.Where, object]]
    b: str | None
    pictures: bool
    side: str
    receiver: str | None
    kind: str


class Pool:
    """Worker processes, and the `Board` that they share with the server."""

    def __init__(self, stack: ExitStack, clips: Path | None, processes: int) -> None:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="steadycast-lab-")))
        self.board = Board(folder / "board")
        self._setup = Setup(folder / "board", clips)
        self._all = [
            stack.enter_context(Workers("steadycast.lab.work:begin", self._setup, 1))
            for _ in range(processes)
        ]
        self._free: asyncio.Queue[Workers] = asyncio.Queue()
        self._places: OrderedDict[str, int] = OrderedDict()
        self._at_it: set[asyncio.Future[Any]] = set()
        for worker in self._all:
            self._free.put_nowait(worker)

    @property
    def pids(self) -> list[int]:
        """The ids of the worker processes."""
        return [pid for worker in self._all for pid in worker.pids]

    def place(self, tab: str, *, film: bool) -> int:
        """Return the place of a browser tab on the board (`work.Board`).

        If no place is free, the tab gets the place of the tab that was inactive for the longest time.
        """
        if tab not in self._places:
            free = set(range(_PAGES)) - set(self._places.values())
            self._places[tab] = free.pop() if free else self._places.popitem(last=False)[1]
        self._places.move_to_end(tab)
        return 2 * self._places[tab] + film

    async def do(self, task: Task) -> Any:
        """Execute a task in a worker process. Return its bytes, or return its exception."""
        worker = await self._free.get()
        at_it = asyncio.ensure_future(self._with(worker, task))
        self._at_it.add(at_it)
        at_it.add_done_callback(self._at_it.discard)
        return await asyncio.shield(
            at_it
        )  # keep the worker until its task is done, even if the request is cancelled earlier

    async def _with(self, worker: Workers, task: Task) -> Any:
        try:
            return await asyncio.to_thread(lambda: next(worker.do([task]))[1])
        finally:
            self._free.put_nowait(worker)

    async def close(self) -> None:
        """Cancel the tasks that are running, and wait until they have ended."""
        for place in range(Board.PLACES):
            self.board.next(place)
        for _ in self._all:
            await self._free.get()


def rivals() -> list[str]:
    """Return the default controllers for side B: for each value of `cast`, the registry's first adaptive controller.

    If side A uses the first of these controllers, side B uses the second.
    """
    first: dict[str, str] = {}
    for each in registry():
        if each.feedback != "none":
            first.setdefault(each.cast, each.name)
    return list(first.values())


class Lab:
    """Handles the requests of the page."""

    def __init__(
        self, bases: Sequence[Base], clips: Path | None, token: str, watched: Sequence[Watched] = ()
    ) -> None:
        self.bases = bases
        self.recorded = [recorded.beside(base.place) for base in bases]
        self.watched = watched
        self.clips = clips
        self.token = token
        self.pool: Pool | None = None
        self.warm = asyncio.Event()

    def app(self) -> Starlette:
        """Return the ASGI application."""
        routes = web.file_routes(_FILES)
        answers: Mapping[str, Callable[[Json], Awaitable[Response]]] = {
            "begin": self.begin,
            "run": self.run,
            "film": self.film,
            "report": self.report,
            "progress": self.progress,
            "cancel": self.cancel,
            "watch": self.watch,
        }
        for name, answer in answers.items():
            routes.append(Route(f"/api/{name}", self._guarded(answer), methods=["POST"]))
        return web.application(routes)

    def _guarded(
        self, answer: Callable[[Json], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            if not web.BY_ADDRESS.is_own(request):
                return web.wrong(403, "this request comes from another page")
            if not web.is_token(request.headers.get("x-steadycast-token", ""), self.token):
                return web.wrong(403, "the token is not this lab's")
            body = await web.body(request, _MOST_BODY)
            if body is None:
                return web.wrong(413, f"a request has at most {_MOST_BODY} bytes")
            try:
                sent = json.loads(body)
                json.dumps(sent, ensure_ascii=False).encode()  # raises an error for a lone surrogate
                if not isinstance(sent, dict):
                    raise ValueError("a request is an object")
                return await answer(sent)
            except UserError as wrong:
                return JSONResponse({"problems": wrong.listed()}, 422)
            except (ValueError, RecursionError) as error:
                return web.wrong(400, str(error)[:200])

        return guarded

    # ------------------------------------------------------------ answers

    async def begin(self, sent: Json) -> Response:
        """Return the list of scenarios, and the other data that the page loads only once."""
        return JSONResponse(
            {
                "watch": [str(each.place) for each in self.watched],
                "bases": [
                    {"name": base.name, "text": base.text, "recorded": call and recorded.NAME}
                    for base, call in zip(self.bases, self.recorded, strict=True)
                ],
                "controllers": [
                    {"name": each.name, "about": each.about, "colour": each.colour} for each in registry()
                ],
                "rivals": rivals(),
                "fates": style.FATE,
                "limits": style.LIMIT,
                "mos": {str(grade): [word, colour] for grade, (word, colour) in style.MOS.items()},
                "ink": style.INK,
            }
        )

    async def run(self, sent: Json) -> Response:
        """Apply the page's edits to the scenario. Run it with controllers A and B, and return both results."""
        asked = self._asked(sent)
        pool = self._pool()
        place = pool.place(asked.tab, film=False)
        ticket = pool.board.next(place)
        text = await asyncio.to_thread(edited, asked.text, asked.edits)
        try:
            sides, shown = await asyncio.to_thread(self._sides, asked, text)
        except Problems as wrong:
            return JSONResponse({"text": text, "problems": wrong.problems}, 422)
        await self.warm.wait()
        # If the scenario was made from a call, show the recorded call as A, and run only B.
        given = self.recorded[self.bases.index(asked.base)]
        tasks = [
            Task("run", asked.base, text, sets, (), place, ticket, pictures=asked.pictures)
            for sets in sides[given is not None :]
        ]
        outcomes = await asyncio.gather(*map(pool.do, tasks))
        pool.board.over(place, ticket)
        if any(isinstance(outcome, CancelledError) for outcome in outcomes):
            return JSONResponse({"newer": True})
        results = [*([given] if given else []), *map(_outcome, outcomes)]
        if "problems" in results[0]:
            return JSONResponse({"text": text, "knobs": shown, **results[0]}, 422)
        verdict = _verdict(results)
        content = _json({"text": text, "knobs": shown, "b": asked.b, "sides": results, "verdict": verdict})
        return Response(content, media_type="application/json")

    async def film(self, sent: Json) -> Response:
        """Encode a film that shows the original and the pictures that the viewers of A and B saw, side by side."""
        asked = self._asked(sent)
        sides, _ = await asyncio.to_thread(self._sides, asked, asked.text)
        return await self._one(asked, "film", sides[0], tuple(sides[1:]), FORMATS[asked.kind][1])

    async def report(self, sent: Json) -> Response:
        """Return the HTML report of controller A or B."""
        asked = self._asked(sent)
        sides, _ = await asyncio.to_thread(self._sides, asked, asked.text)
        sets = sides[-1] if asked.side == "b" else sides[0]
        return await self._one(asked, "report", sets, (), "text/html; charset=utf-8")

    async def _one(
        self,
        asked: Asked,
        what: str,
        sets: tuple[str, ...],
        others: tuple[tuple[str, ...], ...],
        kind: str,
    ) -> Response:
        pool = self._pool()
        place = pool.place(asked.tab, film=True)
        ticket = pool.board.next(place)
        shown: dict[str, Any] = {"receiver": asked.receiver, "kind": asked.kind, "pictures": what == "report"}
        task = Task(what, asked.base, asked.text, sets, others, place, ticket, **shown)
        outcome = await pool.do(task)
        pool.board.over(place, ticket)
        if isinstance(outcome, CancelledError):
            return JSONResponse({"newer": True})
        if isinstance(outcome, bytes):
            return Response(outcome, headers={"content-type": kind})
        return JSONResponse(_outcome(outcome), 422)

    async def progress(self, sent: Json) -> Response:
        """Return the progress of the run and of the film that a tab has requested."""
        tab, pool = _text(sent, "tab", 64) if self.warm.is_set() else "", self._pool()
        told = {
            name: pool.board.told(pool.place(tab, film=film))
            for name, film in (("run", False), ("film", True))
        }
        return JSONResponse(told)

    async def cancel(self, sent: Json) -> Response:
        """Cancel the tasks of a tab."""
        tab, pool = _text(sent, "tab", 64), self._pool()
        for film in (False, True):
            pool.board.next(pool.place(tab, film=film))
        return JSONResponse({})

    async def watch(self, sent: Json) -> Response:
        """Return the status lines that the watched sessions have written so far."""
        for each in self.watched:
            each.read()
        began = [each.began for each in self.watched if each.began is not None]
        # Use separate time axes for sessions that ran at very different times, or whose clocks differ.
        near = bool(began) and max(began) - min(began) < _NEAR_S
        sides = [each.shown(min(began) if near else None) for each in self.watched]
        return Response(_json(sides), media_type="application/json")

    def _pool(self) -> Pool:
        assert self.pool is not None
        return self.pool

    def _sides(self, asked: Asked, text: str) -> tuple[list[tuple[str, ...]], list[Json]]:
        """Check the text of the scenario. Return the changes for the runs A and B, and the controls of the page."""
        tree, loaded = checked(asked.base, text, self.clips)
        sides: list[tuple[str, ...]] = [()]
        video = first_video(tree)
        if asked.b is not None and video is not None:
            # Allow only the name of a known controller. If TOML were allowed here, a value could be the path of any
            # file.
            if asked.b not in {each.name for each in registry()} | asked.base.names:
                raise scenario_text.problem(
                    f'the page may not name "{asked.b}"', "choose from the list", key="B"
                )
            sides.append((f"flow.{tree['flow'][video]['name']}.controller={asked.b}",))
        own = in_folder(self.clips) if self.clips is not None else []
        clips = [*map(str, own[:100]), *named_clips()]
        found = knobs(tree, tomllib.loads(loaded.toml()), asked.base, asked.b, clips)
        return sides, [asdict(knob) for knob in found]

    def _asked(self, sent: Json) -> Asked:
        base = sent.get("base", 0)
        # Check the exact type, because `bool` is a subclass of `int`.
        if type(base) is not int or not 0 <= base < len(self.bases):
            raise ValueError("base: no such scenario")
        kind = _text({"kind": "mp4", **sent}, "kind", 9)
        if kind not in FORMATS:
            raise ValueError(f"kind: one of {', '.join(FORMATS)}")
        side = _text({"side": "a", **sent}, "side", 9)
        if side not in ("a", "b"):
            raise ValueError("side: a or b")
        return Asked(
            tab=_text(sent, "tab", 64),
            base=self.bases[base],
            text=_text(sent, "text", _MOST_BODY),
            edits=edits_of(sent.get("edits", [])),
            b=None if sent.get("b") is None else _text(sent, "b", 200),
            pictures=sent.get("pictures") is True,
            side=side,
            receiver=None if sent.get("receiver") is None else _text(sent, "receiver", 200),
            kind=kind,
        )


def _text(sent: Json, name: str, most: int) -> str:
    value = sent.get(name)
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"{name}: a text of at most {most} characters")
    return value


def _json(content: object) -> str:
    # Refuse NaN and infinity. They are not valid in JSON, and a browser would refuse the whole answer.
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _outcome(outcome: Any) -> Json:
    if isinstance(outcome, bytes):
        found: Json = json.loads(outcome)
        return found
    if not isinstance(outcome, UserError):
        what = f"the run failed ({type(outcome).__name__}: {str(outcome)[:200]})"
        remedy = "please report this, with the scenario's text"
        if isinstance(outcome, LostError):
            what = f"the run was ended from outside: {outcome}"
            remedy = "see whether the machine has memory left, and change something to run it again"
        outcome = UserError("", what, remedy)
    return {"problems": outcome.listed()}


def _verdict(results: Sequence[Json]) -> Json | None:
    """Recommend controller A or B. Return `None` if a run failed, or if there is only one controller."""
    summaries = [result.pop("judged", None) for result in results]
    if None in summaries or len(summaries) < 2:
        return None
    tested = choice.in_question(summaries)

    def named(side: str, summary: Json) -> str:
        steered = {str(flow["controller"]) for flow in summary["flows"] if flow["name"] in tested}
        return f"{side} ({', '.join(sorted(steered))})"

    names = map(named, "AB", summaries)
    found = [
        choice.candidate(name, {choice.seed_of(summary, 0): summary}, tested)
        for name, summary in zip(names, summaries, strict=False)
    ]
    return choice.verdict(found, "lab").as_json()


# ---------------------------------------------------------------- the command


def listening(port: int | None) -> socket.socket:
    """Return a listening loopback socket. Without ``port``, use the first free port from `PORT` on."""
    for number in [port] if port is not None else range(PORT, PORT + _PORTS):
        try:
            return web.listener("127.0.0.1", number)
        except OSError as error:
            reason = error.strerror or "can't be taken"
    place = f"--port {port}" if port is not None else f"ports {PORT} to {PORT + _PORTS - 1}"
    raise UserError(place, f"no room to listen ({reason})", "give another --port, or leave it out")


def serve(
    bases: Sequence[Base],
    *,
    port: int | None = None,
    clips: Path | None = None,
    watched: Sequence[Path] = (),
    link: str = "",
    opens: bool = True,
    told: Callable[[str], None] = print,
) -> None:
    """Serve the lab until a signal ends it.

    Args:
        bases: the scenarios from which the page can start.
        port: the port to listen at. By default, it is the first free port from 8765 on.
        clips: a folder with clips that the page may use.
        watched: files of status lines. If there are any, the page shows these live sessions instead of scenarios.
        link: the part of the address after the token, which contains a shared scenario.
        opens: whether to open a browser.
        told: callback that receives the address.

    """
    if clips is not None and not clips.is_dir():
        raise UserError(
            f"--allow-clips {clips}", "there is no such folder", "name the folder that has the clips"
        )
    # Require a token, because other users of this machine can reach the port.
    token = secrets.token_urlsafe(24)
    lab = Lab(bases, clips, token, [Watched(place) for place in watched])
    with ExitStack() as stack:
        listener = stack.enter_context(listening(port))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/#token={token}{link}"
        asyncio.run(_serve(lab, listener, stack, lambda: _ready(address, opens, told)))


def _ready(address: str, opens: bool, told: Callable[[str], None]) -> None:
    told(address)
    if opens:
        # Start the browser in a thread, because a browser that runs in the terminal would block the server.
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


async def _serve(lab: Lab, listener: socket.socket, stack: ExitStack, ready: Callable[[], None]) -> None:
    lab.pool = Pool(stack, lab.clips, _WORKERS if lab.bases else 0)
    warm = asyncio.create_task(_warm(lab)) if lab.bases else None
    try:
        await web.serve(lab.app(), listener, ready)
    finally:
        await lab.pool.close()
        if warm is not None:
            warm.cancel()


async def _warm(lab: Lab) -> None:
    """Load the first scenario in each worker process.

    The processes load in turn, because the first process encodes the media and the other processes reuse the result.
    """
    pool = lab.pool
    assert pool is not None
    place = pool.place("", film=False)
    ticket = pool.board.next(place)
    base = lab.bases[0]
    for _ in range(_WORKERS):
        await pool.do(Task("run", base, base.text, (), (), place, ticket))
        lab.warm.set()
