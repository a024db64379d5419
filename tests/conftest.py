"""What all tests find."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def hanging_up_is_heard() -> Iterator[None]:
    """Under `nohup` SIGHUP is ignored, and a command leaves that as it is: the tests of it take the default."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
