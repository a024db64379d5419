"""The soak test in short form: the same session, with as many joins and leaves per second."""

from __future__ import annotations

import pytest
from steadycast.errors import MissingError


def test_a_short_soak_keeps_its_rate_and_its_time() -> None:
    from validation.soak import soak

    try:
        told = soak(9, receivers=8)
    except MissingError:
        pytest.skip("needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN, and /dev/net/tun")
    assert told.complete
    # At most 8 Mb/s, minus the time of its start and its restart.
    assert 3e6 < told.rate_bps < 8.1e6
    assert 10 < told.memory[-1][1] < 2_000
    assert len(told.memory) >= 7
