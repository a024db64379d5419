"""Traces of other networks, written by hand in the documented formats."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from steadycast.media.synthetic import Synthetic

PAYLOAD = 500
HEADERS = 28


@dataclass(frozen=True)
class Sent:
    """A packet: its sending and its arrival time in µs (`None`: lost), and its bytes without UDP and IP headers."""

    at_us: int
    came_us: int | None
    size: int

    @property
    def sent_s(self) -> str:
        return f"{self.at_us / 1e6:.6f}"

    @property
    def came_s(self) -> str:
        assert self.came_us is not None
        return f"{self.came_us / 1e6:.6f}"


def arrivals(packets: Sequence[Sent]) -> list[tuple[int, Sent]]:
    """The numbers of packets that arrived, in the order of arrival."""
    came = [(n, packet) for n, packet in enumerate(packets) if packet.came_us is not None]
    return sorted(came, key=lambda each: each[1].came_us or 0)


def sd_rd(folder: Path, packets: Sequence[Sent]) -> list[Path]:
    """EvalVid's traces as its agents for ns-2 write them."""
    sd, rd = folder / "sd_be", folder / "rd_be"
    sd.write_text("".join(f"{p.sent_s:<16} id {n:<16} udp {p.size:<16}\n" for n, p in enumerate(packets)))
    rd.write_text("".join(f"{p.came_s:<16} id {n:<16} udp {p.size:<16}\n" for n, p in arrivals(packets)))
    return [sd, rd]


def ns2(folder: Path, packets: Sequence[Sent]) -> list[Path]:
    """A wired trace of ns-2 (trace-all; section 26.4 of its manual): 0 → 2 → 3, with a TCP connection beside it.

    A lost packet is dropped at the queue from node 2 to node 3. Packets have numbers of the whole simulation, which
    also counts the packets of TCP.
    """
    lines: list[tuple[int, str]] = []
    for n, p in enumerate(packets):
        tail = f"udp {p.size} ------- 1 0.0 3.0 {n} {2 * n + 7}"
        hop = p.at_us + 400
        lines += [(p.at_us, f"+ {p.sent_s} 0 2 {tail}"), (p.at_us, f"- {p.sent_s} 0 2 {tail}")]
        lines += [(hop, f"r {hop / 1e6:.6f} 0 2 {tail}"), (hop, f"+ {hop / 1e6:.6f} 2 3 {tail}")]
        if p.came_us is None:
            lines.append((hop, f"d {hop / 1e6:.6f} 2 3 {tail}"))
        else:
            lines += [(hop, f"- {hop / 1e6:.6f} 2 3 {tail}"), (p.came_us, f"r {p.came_s} 2 3 {tail}")]
        lines.append((p.at_us, f"+ {p.sent_s} 1 2 tcp 1040 ------- 2 1.0 3.1 {n} {2 * n + 8}"))
    path = folder / "out.tr"
    path.write_text("".join(f"{line}\n" for _, line in sorted(lines, key=lambda each: each[0])))
    return [path]


def ns3(folder: Path, packets: Sequence[Sent]) -> list[Path]:
    """An ascii trace of ns-3's point-to-point devices, as its tutorial prints one: node 0 → node 1 → node 2."""
    lines: list[tuple[int, str]] = []
    for n, p in enumerate(packets):
        ip = (
            f"ns3::Ipv4Header (tos 0x0 DSCP Default ECN Not-ECT ttl 64 id {n % 65536} protocol 17 offset (bytes) 0 "
            f"flags [none] length: {p.size + HEADERS} 10.1.1.1 > 10.1.2.2) ns3::UdpHeader (length: {p.size + 8} "
            f"49153 > 9) Payload (size={p.size})"
        )
        ppp = f"ns3::PppHeader (Point-to-Point Protocol: IP (0x0021)) {ip}"
        queue = "$ns3::PointToPointNetDevice/TxQueue"
        hop = p.at_us + 400
        lines.append((p.at_us, f"+ {p.at_us / 1e6} /NodeList/0/DeviceList/0/{queue}/Enqueue {ppp}"))
        lines.append((p.at_us, f"- {p.at_us / 1e6} /NodeList/0/DeviceList/0/{queue}/Dequeue {ppp}"))
        mac = "$ns3::PointToPointNetDevice/MacRx"
        lines.append((hop, f"r {hop / 1e6} /NodeList/1/DeviceList/0/{mac} {ppp}"))
        if p.came_us is None:
            lines.append((hop, f"d {hop / 1e6} /NodeList/1/DeviceList/1/{queue}/Drop {ppp}"))
        else:
            lines.append((hop, f"+ {hop / 1e6} /NodeList/1/DeviceList/1/{queue}/Enqueue {ppp}"))
            lines.append((p.came_us, f"r {p.came_us / 1e6} /NodeList/2/DeviceList/0/{mac} {ppp}"))
        arp = "ns3::ArpHeader (request source mac: 02-06-00:00:00:00:00:01)"
        lines.append((p.at_us, f"+ {p.at_us / 1e6} /NodeList/0/DeviceList/0/{queue}/Enqueue {arp}"))
    path = folder / "myfirst.tr"
    path.write_text("".join(f"{line}\n" for _, line in sorted(lines, key=lambda each: each[0])))
    return [path]


def tcpdump(folder: Path, packets: Sequence[Sent]) -> list[Path]:
    """The output of tcpdump -tt -n -v for IPv4, with the ports on a second line."""
    epoch = 1_700_000_000

    def text(at_us: int, n: int, p: Sent) -> str:
        return (
            f"{epoch + at_us // 10**6}.{at_us % 10**6:06} IP (tos 0x0, ttl 64, id {(n + 65_500) % 65536}, offset 0, "
            f"flags [DF], proto UDP (17), length {p.size + HEADERS})\n"
            f"    192.168.0.1.40000 > 192.168.0.2.12346: UDP, length {p.size}\n"
        )

    sd, rd = folder / "sd_a01", folder / "rd_a01"
    noise = f"{epoch}.000001 ARP, Request who-has 192.168.0.2 tell 192.168.0.1, length 28\n"
    sd.write_text(noise + "".join(text(p.at_us, n, p) for n, p in enumerate(packets)))
    rd.write_text(noise + "".join(text(p.came_us or 0, n, p) for n, p in arrivals(packets)))
    return [sd, rd]


def old_tcpdump(folder: Path, packets: Sequence[Sent]) -> list[Path]:
    """The output of tcpdump -tt -n -v in EvalVid's time: one line per packet."""

    def text(at_us: int, n: int, p: Sent) -> str:
        return (
            f"{1_029_710_404 + at_us // 10**6}.{at_us % 10**6:06} 192.168.0.1.32768 > 192.168.0.2.12346: "
            f"[udp sum ok] udp {p.size} (DF) (ttl 64, id {n % 65536}, len {p.size + HEADERS})\n"
        )

    sd, rd = folder / "sd_old", folder / "rd_old"
    sd.write_text("".join(text(p.at_us, n, p) for n, p in enumerate(packets)))
    rd.write_text("".join(text(p.came_us or 0, n, p) for n, p in arrivals(packets)))
    return [sd, rd]


def columns(folder: Path, packets: Sequence[Sent]) -> list[Path]:
    """A table with a heading, as short custom code of a simulation writes it."""
    path = folder / "packets.csv"
    rows = [(p.at_us, f"{p.sent_s},sent,a,{n},{p.size}") for n, p in enumerate(packets)]
    rows += [(p.came_us or 0, f"{p.came_s},received,b,{n},{p.size}") for n, p in arrivals(packets)]
    path.write_text("time,event,node,id,size\n" + "".join(f"{row}\n" for _, row in sorted(rows)))
    return [path]


def pcap(folder: Path, packets: Sequence[Sent], *, rtp: bool = False) -> list[Path]:
    """Ethernet captures at both ends. The IP identification is 0, as in Linux's datagrams with DF."""

    def frame(n: int, size: int) -> bytes:
        head = struct.pack(">BBHII", 0x80, 96, n % 65536, n, 7) if rtp else struct.pack(">I", n)
        body = head + bytes(size)
        udp = struct.pack(">HHHH", 5000, 5002, 8 + len(body), 0) + body
        addresses = bytes([10, 0, 0, 1, 10, 0, 0, 2])
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0x4000, 64, 17, 0) + addresses
        return bytes(12) + b"\x08\x00" + ip + udp

    def capture(path: Path, seen: Sequence[tuple[int, int, Sent]]) -> Path:
        data = bytearray(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for at_us, n, p in seen:
            bytes_ = frame(n, p.size)
            data += (
                struct.pack("<IIII", 1000 + at_us // 10**6, at_us % 10**6, len(bytes_), len(bytes_)) + bytes_
            )
        path.write_bytes(data)
        return path

    first = capture(folder / "sender.pcap", [(p.at_us, n, p) for n, p in enumerate(packets)])
    last = capture(folder / "receiver.pcap", [(p.came_us or 0, n, p) for n, p in arrivals(packets)])
    return [first, last]


def rtp_pcap(folder: Path, packets: Sequence[Sent]) -> list[Path]:
    return pcap(folder, packets, rtp=True)


WRITERS = (sd_rd, ns2, ns3, tcpdump, old_tcpdump, columns, pcap, rtp_pcap)


def write_clip(path: Path, raw: Path, frames: int = 48) -> None:
    """Encode a synthetic film as MPEG-4 with two consecutive B frames, and save it as raw video."""
    pictures = Synthetic(frames).pictures("qcif", 25)
    with raw.open("wb") as file, av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 176, 144, "yuv420p"
        stream.gop_size, stream.max_b_frames = 12, 2
        stream.codec_context.qmin = stream.codec_context.qmax = 4
        for n, samples in enumerate(pictures.frames):
            file.write(np.asarray(samples).tobytes())
            frame = av.VideoFrame.from_ndarray(np.asarray(samples).reshape(-1, 176), format="yuv420p")
            frame.pts, frame.time_base = n, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
