"""Steadycast's sender kit for aiortc.

`PeerConnection` replaces ``aiortc.RTCPeerConnection``. It offers and reports transport-wide numbers, sends
audio immediately and video at the pacing rate, retransmits within the rate, and sets the encoder's bitrate.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from aiortc import RTCConfiguration, RTCPeerConnection
from aiortc.codecs import CODECS, HEADER_EXTENSIONS
from aiortc.rtcrtpparameters import RTCRtcpFeedback, RTCRtpHeaderExtensionParameters
from steadycast import Decision

from steadycast_aiortc.feedback import Reporter
from steadycast_aiortc.sender import Kit

__all__ = ["PeerConnection"]

URI = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01"
EXTENSION_ID = 4
"""The extension's id in an offer. aiortc uses 1 to 3, and all media of a bundle share the ids (RFC 8285)."""

for kind in ("audio", "video"):
    HEADER_EXTENSIONS[kind].append(RTCRtpHeaderExtensionParameters(id=EXTENSION_ID, uri=URI))
    for codec in CODECS[kind]:
        codec.rtcpFeedback.append(RTCRtcpFeedback(type="transport-cc"))


class PeerConnection(RTCPeerConnection):
    """A peer connection of aiortc whose video follows a rate controller of Steadycast.

    Args:
        configuration: as aiortc's.
        floor_bps: the lower limit of the rate, in bit/s of IP packets.
        cap_bps: the upper limit. aiortc's encoders have limits of their own: 0.25 to 1.5 Mb/s for VP8.
        controller: its name in ``steadycast controllers``.
        parameters: the controller's parameters, over its defaults.
        retransmissions_covered: whether the peer's feedback covers retransmissions, as Chromium's and aiortc's does.

    Raises:
        steadycast.UserError: no such controller or parameter.

    """

    def __init__(
        self,
        configuration: RTCConfiguration | None = None,
        *,
        floor_bps: float,
        cap_bps: float,
        **settings: Any,
    ) -> None:
        self._cap_bps = cap_bps
        self._make = partial(Kit, floor_bps=floor_bps, cap_bps=cap_bps, **settings)
        self._make(None)  # raise an error for a wrong name now, not when the call is connected
        super().__init__(configuration)
        self._kits: dict[Any, Kit] = {}
        self._reporters: dict[Any, Reporter] = {}
        self._hooked: set[Any] = set()

    @property
    def decision(self) -> Decision | None:
        """The controller's current decision; `None` while it controls no stream."""
        return next((kit.sender.decision for kit in self._kits.values()), None)

    async def setLocalDescription(self, description: Any) -> None:  # noqa: N802
        """Set the local description as aiortc does, and send its streams through the kit."""
        self._hook()
        await super().setLocalDescription(description)

    async def setRemoteDescription(self, description: Any) -> None:  # noqa: N802
        """Set the remote description as aiortc does, and send its streams through the kit."""
        await super().setRemoteDescription(description)
        self._hook()  # aiortc connects in a separate task, which has not begun yet

    def _hook(self) -> None:
        for transceiver in self.getTransceivers():
            if transceiver not in self._hooked:
                self._hooked.add(transceiver)
                sender, receiver = transceiver.sender, transceiver.receiver
                sender.send = partial(self._send, sender, sender.send)
                receiver.receive = partial(self._receive, sender, receiver, receiver.receive)

    async def _send(self, sender: Any, send: Any, parameters: Any) -> None:
        transport = sender.transport
        if not any(extension.uri == URI for extension in parameters.headerExtensions):
            logging.getLogger(__name__).warning(
                "%s: the peer has not negotiated %s; aiortc's own rate control stays", sender.kind, URI
            )
        else:
            if transport not in self._kits:
                self._kits[transport] = self._make(transport)
            self._kits[transport].add(sender, parameters)
        await send(parameters)

    async def _receive(self, sender: Any, receiver: Any, receive: Any, parameters: Any) -> None:
        transport = receiver.transport
        if transport not in self._reporters and any(each.uri == URI for each in parameters.headerExtensions):
            self._reporters[transport] = Reporter(transport, sender._ssrc, self._cap_bps)
        await receive(parameters)
