"""A `steadycast` command whose processes have already imported the libraries, which takes longer than most commands.

A server imports them once, and forks a process for each command. This process gets the arguments, environment, folder
and standard streams of the caller, which returns its exit code. The server uses no thread and draws nothing, so that a
forked process is like one that has just been started.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STREAMS = (0, 1, 2)
"""The file descriptors of the standard streams."""


@contextmanager
def preloaded(folder: Path) -> Iterator[Path]:
    """Run a server for the duration of the block; returns a folder for PATH, which has the command."""
    door, path = folder / "door", folder / "bin"
    path.mkdir()
    client = shlex.join([sys.executable, "-IS", __file__, "ask", str(door)])
    (path / "steadycast").write_text(f'#!/bin/sh\nexec {client} "$@"\n')
    (path / "steadycast").chmod(0o755)
    words = [sys.executable, "-P", __file__, "serve", str(door)]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield path
        finally:
            server.kill()


def ask(door: str, words: list[str]) -> int:
    """Run a command by the server, and return its exit code when its process has ended."""
    request = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(door)
        socket.send_fds(server, [json.dumps(request).encode()], _STREAMS)
        code = server.recv(16)
        server.recv(1)  # The process closes its end of the connection just before it ends.
    if not code:
        print("steadycast: the process has ended without an exit code", file=sys.stderr)
        return 1
    return int(code)


def serve(door: str) -> None:
    """Answer commands until the process is killed. In each forked process, the command ends the process."""
    import matplotlib.backends.backend_svg
    import matplotlib.figure  # noqa: F401
    import numpy  # noqa: F401
    import polars  # noqa: F401
    from steadycast import cli
    from steadycast.report import page, run_comparison  # noqa: F401

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(door)
        listener.listen()
        print("ready", flush=True)
        while True:
            caller, _ = listener.accept()
            if os.fork() == 0:
                break
            caller.close()
            while _ended():
                pass
    with caller:  # closed when the command has ended, just before the process ends
        message, streams, _, _ = socket.recv_fds(caller, 1 << 20, len(_STREAMS))
        for number, stream in zip(_STREAMS, streams, strict=True):
            os.dup2(stream, number)
            os.close(stream)
        request = json.loads(message)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = ["steadycast", *request["words"]]
        # A command that starts itself again, starts as if it had been typed.
        sys.orig_argv = [sys.executable, str(Path(sys.executable).with_name("steadycast")), *request["words"]]
        try:
            cli.main()
        except SystemExit as end:
            caller.send(str(end.code or 0).encode())
            raise


def _ended() -> bool:
    """Collect a process that has ended; return whether there may be another one."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(ask(sys.argv[2], sys.argv[3:]))
