"""Reads files, and writes them atomically: a file gets its final name only when it is complete."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from steadycast.errors import UnwrittenError, UserError, reason


@contextmanager
def written(path: Path, remedy: str = "make room, or name another place") -> Iterator[None]:
    """Convert system errors in the block to errors that say that ``path`` can't be written."""
    try:
        yield
    except OSError as error:
        raise UnwrittenError.of(path, error, remedy) from error


@contextmanager
def readable(place: object, remedy: str) -> Iterator[None]:
    """Convert system and decoding errors in the block to errors that say that ``place`` can't be read."""
    try:
        yield
    except OSError as error:
        raise UserError(str(place), f"can't be read ({reason(error)})", remedy) from error
    except UnicodeDecodeError as error:
        if bytes(error.object[:2]) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            told = "it is a text in UTF-16", "save it as UTF-8: iconv -f UTF-16 -t UTF-8"
        else:
            told = "it is not text", remedy
        raise UserError(str(place), f"can't be read ({told[0]})", told[1]) from error


@contextmanager
def whole(
    path: Path, remedy: str = "make room, or name another place", ending: str = ".new"
) -> Iterator[Path]:
    """Yield a temporary path. Rename it to ``path`` if the block succeeds, and remove it otherwise.

    The path of a pipe or a device is yielded unchanged. Several writers of one file must use different values of
    ``ending``.
    """
    new = path if path.exists() and not path.is_file() else path.with_name(f"{path.name}{ending}")
    try:
        yield new
        if new is not path:
            new.replace(path)
    except BaseException as error:
        if new is not path:
            with suppress(OSError):
                new.unlink(missing_ok=True)
        if isinstance(error, OSError) or (isinstance(error, Exception) and "(os error " in str(error)):
            raise UnwrittenError.of(path, error, remedy) from error
        raise


_COMPRESSED: dict[bytes, tuple[str, Callable[[Path], Any] | None]] = {
    b"\x1f\x8b": ("gzip", gzip.open),
    b"BZh": ("bzip2", bz2.open),
    b"\xfd7zXZ\0": ("xz", lzma.open),
    b"\x28\xb5\x2f\xfd": ("Zstandard", None),
    b"\x04\x22\x4d\x18": ("LZ4", None),
    b"PK\x03\x04": ("ZIP", None),
    b"7z\xbc\xaf\x27\x1c": ("7-Zip", None),
}
"""Compression formats by their first bytes. A format has a name, and a function to open it if it is supported."""


def contents(path: Path, most_bytes: int) -> bytes:
    """Return a file's content. Decompress it if it is compressed by gzip, bzip2 or xz.

    Raises:
        UserError: the file is too large, damaged, or compressed in another format.

    """
    with path.open("rb") as opened:
        head = opened.read(8)
        name, opener = next(
            (form for magic, form in _COMPRESSED.items() if head.startswith(magic)), ("", None)
        )
        if not name:
            opened.seek(0)
            # Read one byte more than allowed, which shows whether the file is too large.
            data = opened.read(most_bytes + 1)
        elif opener is None:
            raise UserError(str(path), f"it is compressed in the form {name}, which is not read", "unpack it")
        else:
            try:
                with opener(path) as packed:
                    data = packed.read(most_bytes + 1)
            except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
                what = f"it is not whole: its {name} stream is damaged or cut ({str(error)[:80]})"
                raise UserError(
                    str(path), what, "give the whole file, or unpack what is left of it"
                ) from error
    if len(data) > most_bytes:
        raise UserError(str(path), f"it has more than {most_bytes >> 20} MiB", "cut it into parts")
    return bytes(data)


def folder(path: Path, remedy: str = "make room, or name another place") -> Path:
    """Create a folder if it does not exist, and return it."""
    with written(path, remedy):
        path.mkdir(parents=True, exist_ok=True)
    return path


def write_text(path: Path, content: str, remedy: str = "make room, or name another place") -> None:
    """Write a text file atomically by `whole`."""
    with whole(path, remedy) as new:
        new.write_text(content, encoding="utf-8")


def media(
    path: Path,
    mode: Literal["r", "w"] = "r",
    *,
    form: str | None = None,
    options: dict[str, str] | None = None,
) -> Any:
    """Open a media file with PyAV.

    The path gets the prefix "file:". Without it, FFmpeg would take the text before a colon for a protocol
    ("2026-11-25T12:30:00.mp4").

    Raises:
        OSError: the system or FFmpeg reported an error; some of FFmpeg's errors are subclasses of ValueError.

    """
    import av

    return av.open(f"file:{path}", mode, format=form, options=options)
