"""An invalid description, file or address gives one line of error. The offer in a valid description is reported."""

from __future__ import annotations

import re

import pytest
import steadycast as sc
from steadycast.errors import UserError

from tests.live.conftest import ports

HEAD = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"


@pytest.mark.parametrize(
    "text",
    [
        "x" * 5_000,
        "o=- 1 1 IN IP4 127.0.0.1\r\n" + HEAD,
        "\n" + HEAD,
        HEAD[1:] * 50,
        "v=1\r\n" + HEAD,
        "nul\0byte",
        "\N{SNOWMAN}" * 300 + "\n",
    ],
)
def test_any_text_that_is_no_description_is_a_users_error(text: str) -> None:
    with pytest.raises(UserError) as caught:
        sc.Receiver(text)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("formats", "lines", "said"),
    [
        ("33", "", r"it offers MP2T \(33\)"),
        ("26 97", "a=rtpmap:97 rtx/90000\r\n", r"it offers JPEG \(26\), rtx \(97\)"),
        ("96", "a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=2\r\n", "interleaved"),
    ],
)
def test_a_description_of_no_use_is_told_by_what_it_offers(formats: str, lines: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        sc.Receiver(f"{HEAD}m=video {ports(1)[0]} RTP/AVP {formats}\r\n{lines}")
    assert re.search(said, str(caught.value)), str(caught.value)
    # The remedy does not request what the user has already given.
    assert ".sdp" not in caught.value.remedy
    assert "codec" not in caught.value.remedy
