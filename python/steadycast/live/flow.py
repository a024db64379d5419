"""Options of a live session that are keys of a scenario's `[[flow]]`. The parser of scenarios checks them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from steadycast import units
from steadycast.controllers import GROUP, ONE
from steadycast.errors import UserError

Flow = Mapping[str, object]
"""The options that the user gave, by option name."""


@dataclass(frozen=True)
class Option:
    """An option of `send`, and the key of a flow that it sets."""

    key: str
    metavar: str
    help: str
    default: object = None
    """The default of the option, if it differs from the default in a scenario."""


CODECS = "mpeg4, mpeg2, h263, h264, h265, vp8, vp9 or av1."
FPS = 'The frame rate: frames per second, or "clip" for the source\'s.'

WEB_CODECS = ("vp8", "h264", "vp9", "av1")
"""Codecs that WebRTC and this sender support."""

OPTIONS: dict[str, Option] = {
    "controller": Option(
        "controller",
        "NAME",
        f"The controller that sets the rate; by default {ONE.controller} towards one receiver, "
        f"{GROUP.controller} towards a group.",
    ),
    "param": Option("params", "KEY=VALUE", "A parameter of the controller. Repeatable."),
    "mode": Option("mode", "MODE", "The controller's mode: repaired (default) or paper."),
    "max_rate": Option("cap", "R", "The highest rate, for example 3Mbps."),
    "floor": Option(
        "floor",
        "R",
        "The lowest rate, also towards a player that never reports; by default 50kbps, or a ladder's lowest rate.",
    ),
    "codec": Option("encode.codec", "NAME", f"The codec: {CODECS}", "mpeg4"),
    "size": Option(
        "encode.size", "SIZE", 'The picture size: "clip" (the source\'s), "cif" or "640x480".', "clip"
    ),
    "fps": Option("encode.fps", "FPS", FPS, "clip"),
    "gop": Option(
        "encode.gop", "N", "The number of frames from one I frame to the next; by default 12.", "12"
    ),
    "packet": Option(
        "packet", "B", "The size of a full packet in bytes, including IP headers; by default 1200."
    ),
    "feedback": Option(
        "feedback", "FORMAT", "The format of the receiver's reports: own (default), rfc8888 or twcc."
    ),
    "ecn": Option(
        "ecn",
        "AS",
        "The ECN codepoint of packets: ect0, ect1 (L4S) or off (default); needs reports by rfc8888.",
    ),
    "repair": Option(
        "repair",
        "HOW",
        "The repair of lost packets: auto, rtx, parity or none; by default auto for pictures.",
    ),
}


def encoding(flow: Flow) -> dict[str, Any]:
    """Return the options for the encoding as arguments of `source.plan`."""
    said = {
        name: flow.get(name, option.default) for name, option in OPTIONS.items() if "encode." in option.key
    }
    gop = str(said["gop"])
    if (frames := units.whole(gop, 1, 600)) is None:
        raise UserError(f"--gop {gop}", "this is not a number of frames", "write a number from 1 to 600")
    return {**said, "gop": frames}


def keys(flow: Flow, clip: str | None) -> dict[str, Any]:
    """Return the options that do not concern the encoding, as keys of a scenario's flow."""
    found = {OPTIONS[name].key: value for name, value in flow.items() if "encode." not in OPTIONS[name].key}
    if "params" in found:
        found["params"] = {str(flow["controller"]): dict(_params(found["params"]))}
    # A number without a unit is in bytes, so add the unit.
    if re.fullmatch(r"\d+", str(found.get("packet", ""))):
        found["packet"] = f"{found['packet']}B"
    if clip is not None:
        found |= {"media": "clip", "clip": clip}
    return found


def _params(given: Any) -> Iterator[tuple[str, object]]:
    from steadycast.live import session

    return iter(given.items() if isinstance(given, Mapping) else session.params(given))


@contextmanager
def named(flow: Flow) -> Iterator[None]:
    """In errors, replace the keys of the flow by names of options."""
    try:
        yield
    except UserError as error:
        if not error.place.startswith("flow."):
            raise
        # The place is flow.NAME.KEY. For a parameter of a controller, KEY ends in the parameter's name.
        key = error.place.split(".", 2)[-1]
        raise UserError(_place(key, flow), error.problem, _remedy(error.remedy)) from None


def _place(key: str, flow: Flow) -> str:
    if key == "cast":
        return "--to"
    if key.startswith("params"):
        return f"--param {key.rpartition('.')[2]}"
    names = [name for name, option in OPTIONS.items() if option.key == key]
    if not names:
        return key
    said = f" {flow[names[0]]}" if names[0] in flow else ""
    return f"--{names[0].replace('_', '-')}{said}"


def _remedy(text: str) -> str:
    """In a remedy, replace the keys of a scenario by options."""
    text = text.replace('write cast = "unicast" for a session per receiver, or ', "")
    for name, option in OPTIONS.items():
        text = re.sub(rf'\b{option.key} = "([^"]*)"', rf"--{name.replace('_', '-')} \1", text)
    return f"take {text}" if text.startswith("--") else text
