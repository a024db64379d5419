"""Converts options of senders and receivers for the core, and writes the run folder of a session."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import secrets
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from steadycast import units
from steadycast.core import core, need_real_time, program
from steadycast.errors import UserError
from steadycast.files import readable
from steadycast.folder import TABLES, Draft, Json
from steadycast.result import Run
from steadycast.table import Table, unscored


def _read(text: str, option: str, kind: dict[str, float], example: str) -> float:
    found = units.read(text, kind)
    if found is None:
        what, _, remedy = example.partition(", ")
        raise UserError(f"{option} {text}", f"this is not {what}", f"write for example {remedy}")
    return found


def rate(text: str, option: str) -> int:
    """Parse a rate such as `2Mbps`, in bit/s."""
    return round(_read(text, option, units.RATE, "a rate, 2Mbps or 300kbps"))


def span(text: str, option: str) -> float:
    """Parse a duration such as `90s`, in seconds."""
    return _read(text, option, units.SPAN, "a length of time, 30s or 5min")


def play_out(buffer: str | None, consume: str | None) -> dict[str, int | None]:
    """Parse the size of a play-out buffer (`16KiB`) and the rate at which it drains (`8kbps`)."""
    if buffer is None and consume is not None:
        raise UserError(f"--consume {consume}", "there is no buffer to be emptied", "give --buffer, too")
    size = None if buffer is None else round(_read(buffer, "--buffer", units.SIZE, "a size, 16KiB"))
    if size == 0:
        raise UserError(f"--buffer {buffer}", "nothing fits into it", "write for example 16KiB")
    drained = rate(consume, "--consume") if consume is not None else None
    if drained == 0:
        raise UserError(f"--consume {consume}", "nothing is taken out", "write for example 8kbps")
    return {"buffer_bytes": size, "consume_bps": drained}


def params(texts: Iterable[str]) -> list[tuple[str, object]]:
    """Parse controller parameters such as `beta=0.3`."""
    found: list[tuple[str, object]] = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise UserError(f"--param {text}", "this is not KEY=VALUE", "write for example --param beta=0.3")
        try:
            found.append((key, json.loads(value)))
        except json.JSONDecodeError:
            found.append((key, value))
    return found


def read_key(path: Path | None) -> str | None:
    """Return the content of a master key file, or `None` if there is no path."""
    return None if path is None else read_secret(path, "key", "make one with: openssl rand -base64 30 > key")


def read_secret(path: Path, what: str, remedy: str) -> str:
    """Return the content of a file that contains a secret.

    Refuses a file that other users may read. Besides a regular file, the path may be a pipe, as a shell's `<(...)` is.
    """
    with readable(path, remedy):
        if path.exists() and not (path.is_file() or path.is_fifo()):
            raise UserError(str(path), f"this is no file, so it has no {what}", remedy)
        if path.stat().st_mode & 0o077 and not _is_credential(path):
            raise UserError(str(path), f"other users can read this {what}", f"run: chmod 600 {path}")
        return path.read_text(encoding="ascii")


def _is_credential(path: Path) -> bool:
    """Whether the file is a systemd credential of this service (LoadCredential=, systemd.exec(5)).

    Such a file has an access control list, which appears as the group's permission bits.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    return bool(folder) and path.resolve().parent == Path(str(folder)).resolve()


_ADDRESS = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>\d+)")


def resolved(text: str, interface: str | None, *, tell: bool = True) -> tuple[str, str | None]:
    """Resolve NAME:PORT or [ADDRESS%ZONE]:PORT to ADDRESS:PORT. Return it together with the interface.

    The zone of a group's address determines the interface. Other texts are returned unchanged. If ``tell`` is set, the
    address that a name resolves to is printed on stderr.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return text, interface
    host, port = match["six"] or match["host"], match["port"]
    address, percent, zone = host.partition("%")
    # If the text is a name, it is looked up below.
    with suppress(ValueError):
        plain = ipaddress.ip_address(address)
        if not percent:
            return text, interface
        index = _index(text, zone)
        if plain.is_multicast and interface is None:
            interface = socket.if_indextoname(index)
        return f"[{plain}%{index}]:{port}", interface
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError, OverflowError) as error:
        problem = f"the name has no address ({getattr(error, 'strerror', None) or error})"
        raise UserError(text, problem, "check the name, or give the address") from error
    taken = str(found[0][4][0])
    shown = f"[{taken}]:{port}" if ":" in taken else f"{taken}:{port}"
    if tell:
        print(f"{text} is {shown}", file=sys.stderr)
    return shown, interface


def is_group(to: str) -> bool:
    """Whether ``to`` is the address of a multicast group, as ADDRESS:PORT. Returns false for an invalid address."""
    match = _ADDRESS.fullmatch(to)
    with suppress(ValueError):
        return match is not None and ipaddress.ip_address(match["six"] or match["host"]).is_multicast
    return False


def is_source_specific(to: str) -> bool:
    """Whether ``to`` is the address of a source-specific multicast group (RFC 4607), in 232/8 or ff3x::/32."""
    match = _ADDRESS.fullmatch(to)
    if match is None or not is_group(to):
        return False
    packed = ipaddress.ip_address(match["six"] or match["host"]).packed
    if len(packed) == 4:
        return packed[0] == 232
    return packed[1] >> 4 == 3 and packed[2:4] == bytes(2)


def _index(text: str, zone: str) -> int:
    """Return the index of the interface ``zone``, which is an interface's name or index (RFC 4007, section 11.2)."""
    try:
        number = units.whole(zone, 1, 2**31 - 1)
        index = socket.if_nametoindex(zone) if number is None else number
        socket.if_indextoname(index)
        return index
    except (OSError, OverflowError) as error:
        raise UserError(text, f'there is no interface "{zone}"', "see `ip link`") from error


def own_name() -> str:
    """Return a new canonical name (CNAME).

    It consists of the host name and a random suffix, which distinguishes sessions of the same host.
    """
    host = re.sub(r"[^a-z0-9.-]", "-", socket.gethostname().lower())[:32].strip("-.") or "host"
    return f"{host}-{secrets.token_hex(2)}"


def live_core() -> Any:
    """Return the compiled module. Raises an error if it was built without real-time support."""
    need_real_time("send and receive")
    return core


def summary_of(record: Any) -> Json:
    """Return the summary of a session's record, and add the version of Steadycast to it."""
    summary: Json = json.loads(record.summary(True))
    summary["program"] = program()
    return summary


def write(record: Any, summary: Json, draft: Draft, *, sdp: str | None) -> Path:
    """Write the session's run folder, and return its path. The session description is written if it is known."""
    if sdp is not None:
        draft.text("session.sdp", sdp)
    run_of(record, summary).fill(draft)
    return draft.finish(summary)


def run_of(record: Any, summary: Json) -> Run:
    """Convert the record of a session to a `Run`."""
    tables = {name: Table(record.table(name)) for name in TABLES}
    tables["frames"] = unscored(record.table("frames"))
    return Run(summary, {"format": 1}, tables, record.toml)
