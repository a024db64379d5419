"""Frame sizes without pictures: the published ladder and traces."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest
from steadycast.errors import UserError
from steadycast.media.table import FrameTable, Kind, coding_order
from steadycast.media.table2 import MEAN_RATES_BPS, table2
from steadycast.media.trace import TraceError, read_trace


def _line(kind, size, time=40000):
    return " ".join(str(v) for v in [time, size, kind, 978, *[max(1, size * 2 // q) for q in range(3, 32)]])


def _trace(kinds="1332332332332"[:1] + "23323323323", groups=3):
    lines = []
    for _ in range(groups):
        lines.append(_line(0, 30, 0))
        lines += [_line(int(kind), {1: 9000, 2: 4000, 3: 2000}[int(kind)]) for kind in kinds]
    return lines


def test_mean_rates_of_table_2_are_the_published_ones():
    table = table2()
    assert table.mean_rates_bps() == pytest.approx(
        [float(rate) for rate in MEAN_RATES_BPS.values()], rel=1e-4
    )
    assert MEAN_RATES_BPS[2] == 2_614_400
    assert MEAN_RATES_BPS[31] == 65_500
    assert MEAN_RATES_BPS[22] > MEAN_RATES_BPS[21]


def test_table_2_has_i_frames_of_three_tenths_of_a_group_and_sizes_of_6_2_1():
    table = table2()
    means = [table.sizes[0, table.kinds == kind].mean() for kind in Kind]
    assert means[0] / means[2] == pytest.approx(6, rel=0.02)
    assert means[1] / means[2] == pytest.approx(2, rel=0.02)
    share = table.sizes[0, table.kinds == Kind.I].sum() / table.sizes[0].sum()
    assert 0.28 < share < 0.32


def test_sizes_of_table_2_vary_by_ten_percent_and_by_their_seed_alone():
    first, again, other = table2(seed=1), table2(seed=1), table2(seed=2)
    assert np.array_equal(first.sizes, again.sizes)
    assert not np.array_equal(first.sizes, other.sizes)
    b_sizes = first.sizes[0, first.kinds == Kind.B].astype(float)
    middle = (b_sizes.min() + b_sizes.max()) / 2
    assert 0.095 < (b_sizes.max() - middle) / middle < 0.105
    still = table2(variation_permille=0, frames=24)
    assert np.ptp(still.sizes[0, still.kinds == Kind.B].astype(int)) <= 1


def test_table_2_is_the_same_on_every_machine():
    digest = hashlib.sha256(table2(frames=2000).sizes.astype("<u4").tobytes()).hexdigest()
    assert digest[:16] == "34ead42292fa10a5"
    assert table2(frames=5).sizes[0].tolist() == [35058, 11783, 5532, 6588, 6399]


def test_groups_of_table_2_are_those_of_the_paper():
    table = table2(frames=24)
    shown = np.empty(24, dtype=int)
    shown[table.display] = table.kinds
    assert "".join(Kind(kind).name for kind in shown[:12]) == "IBBPBBPBBPBB"
    concat = table2(frames=50, gop=25, distance=2)
    shown = np.empty(50, dtype=int)
    shown[concat.display] = concat.kinds
    assert "".join(Kind(kind).name for kind in shown[25:]) == "I" + "BP" * 12


def test_a_flow_longer_than_its_table_starts_again_at_a_group():
    table = table2(frames=30, gop=12)
    assert table.gops == 3
    assert [[table.span(group).start, len(table.span(group))] for group in range(5)] == [
        [0, 12], [12, 12], [24, 6], [30, 12], [42, 12],
    ]  # fmt: skip
    assert table.group_of([0, 29, 30, 59, 60]).tolist() == [0, 2, 3, 5, 6]
    assert table.groups_in(31) == 4
    assert table.groups_in(0) == 0
    assert sorted(table.slot_of(np.arange(30, 60)).tolist()) == list(range(30, 60))


def test_coding_order_puts_references_first():
    kinds, display = coding_order("IBBPBBPBB")
    assert "".join(Kind(kind).name for kind in kinds) == "IPBBPBBBB"
    assert display.tolist() == [0, 3, 1, 2, 6, 4, 5, 7, 8]


def test_a_table_whose_groups_are_not_closed_is_refused():
    kinds = np.array([0, 1, 0, 1], dtype=np.uint8)
    sizes = np.ones((1, 4), dtype=np.uint32)
    with pytest.raises(ValueError, match="closed"):
        FrameTable(Fraction(25), 2, kinds, [2], sizes, np.array([0, 2, 1, 3], dtype=np.uint32), "x")
    with pytest.raises(ValueError, match="I frames"):
        FrameTable(Fraction(25), 3, kinds, [2], sizes, np.arange(4, dtype=np.uint32), "x")


def test_a_multi_rate_trace_is_read_with_its_headers_added_to_the_i_frames(tmp_path):
    path = tmp_path / "highway.dat"
    path.write_text("\n".join(_trace()))
    table = read_trace(path)
    assert (table.fps, table.gop, table.frames, table.qs) == (25, 12, 36, list(range(2, 32)))
    assert table.sizes[0, 0] == 9030
    assert table.sizes[1, 0] == 9000 * 2 // 3 + 30 * 2 // 3
    assert table.display[:4].tolist() == [0, 3, 1, 2]
    assert "no pixels" in table.label


def test_a_trace_in_display_order_is_put_in_coding_order(tmp_path):
    path = tmp_path / "display.dat"
    lines = _trace("133233233233")
    path.write_text("\n".join(lines))
    table = read_trace(path)
    assert "".join(Kind(kind).name for kind in table.kinds[:12]) == "IPBBPBBPBBBB"
    assert table.display[:4].tolist() == [0, 3, 1, 2]
    assert table.sizes[0, 1] == 4000


def test_the_csv_form_holds_the_same(tmp_path):
    path = tmp_path / "sizes.csv"
    rows = [f"{frame},{kind},{q},{1000 * (4 - q)}" for frame, kind in enumerate("IPPIPP") for q in (2, 3)]
    path.write_text("frame,type,q,size\n" + "\n".join(rows) + "\n")
    table = read_trace(path, fps=30)
    assert (table.fps, table.gop, table.qs) == (30, 3, [2, 3])
    assert table.sizes.tolist() == [[2000] * 6, [1000] * 6]


BAD_LINES = {
    "a column too few": lambda line: line.rsplit(" ", 1)[0],
    "a word": lambda line: line.replace("978", "many"),
    "a negative size": lambda line: "40000 -5" + line[10:],
    "a fraction": lambda line: line.replace("40000", "0.04"),
    "an unknown type": lambda line: " ".join([*line.split()[:2], "7", *line.split()[3:]]),
    "a frame of no bytes": lambda line: " ".join([*line.split()[:-1], "0"]),
    "a size beyond all bounds": lambda line: " ".join([*line.split()[:-1], "99999999999999999999"]),
    "an I frame in the middle": lambda line: " ".join([*line.split()[:2], "1", *line.split()[3:]]),
    "superscript digits": lambda line: line.replace("978", "97⁸"),
}


@pytest.mark.parametrize("change", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_named_with_file_line_and_remedy(tmp_path, change):
    lines = _trace()
    lines[17] = change(lines[17])
    path = tmp_path / "bad.dat"
    path.write_text("\n".join(lines))
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert caught.value.place == f"{path}:18"
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("frame,size\n0,1\n", ":1"),
        ("frame,type,q,size\n0,I,2\n", ":2"),
        ("frame,type,q,size\n0,X,2,10\n", ":2"),
        ("frame,type,q,size\n0,I,99,10\n", ":2"),
        ("frame,type,q,size\n0,I,2,ten\n", ":2"),
        ("frame,type,q,size\n0,I,2,10\n0,I,2,10\n", ":3"),
        ("frame,type,q,size\n0,I,2,10\n0,P,3,10\n", ":3"),
        ("frame,type,q,size\n0,I,2,10\n1,P,2,10\n1,P,3,8\n", ":2"),
        ("frame,type,q,size\n0,P,2,10\n", ":2"),
        ("frame,type,q,size\n0,I,2,10\n2,P,2,10\n", ""),
        ("frame,type,q,size\n", ""),
        ("", ""),
    ],
)
def test_a_bad_csv_is_named_with_file_line_and_remedy(tmp_path, text, place):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert caught.value.place == f"{path}{place}"
    assert caught.value.remedy


def test_broken_traces_never_raise_anything_but_a_users_error(tmp_path):
    whole = "\n".join(_trace()).encode()
    path = tmp_path / "broken.dat"
    refused = 0
    for k in range(40):
        start = len(whole) * k // 40
        data = whole[:start] if k % 2 else whole[:start] + bytes(50) + whole[start + 50 :]
        path.write_bytes(data)
        try:
            assert read_trace(path).frames >= 1
        except UserError:
            refused += 1
    assert 30 <= refused <= 40
    for data in (b"\xff\xfe\x00", b"\x00" * 99, b"1"):
        path.write_bytes(data)
        with pytest.raises(TraceError):
            read_trace(path)
    with pytest.raises(TraceError, match="no such file"):
        read_trace(tmp_path / "absent")
    with pytest.raises(TraceError):
        read_trace(tmp_path)


def _sender_trace(separator: str = "\t", end: str = "\n", head: str = "") -> str:
    rows: list[tuple[object, ...]] = [(1, "H", 24, 1, 0.0)]
    for n in range(36):
        size, packets = (9000.5, 10) if n % 12 == 0 else (2000, 2)
        rows.append((n + 2, "I" if n % 12 == 0 else "P", size, packets, f"{(n + 1) / 30:.3f}"))
    return head + "".join(separator.join(map(str, row)) + end for row in rows)


@pytest.mark.parametrize("separator", ["\t", " ", "  \t ", ",", ", "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("head", ["", "# mp4trace\n\n", "frame\ttype\tsize\tsegments\ttime\n", "% a\n// b\n"])
def test_a_single_rate_sender_trace_is_read_in_each_of_its_shapes(tmp_path, separator, end, head):
    path = tmp_path / "st_a01"
    path.write_text(_sender_trace(separator, end, head), newline="")
    table = read_trace(path)
    assert (table.fps, table.gop, table.frames, table.qs) == (30, 12, 36, [1])
    # The header's bytes belong to its I frame, and a partial byte counts as a byte.
    assert table.sizes[0, :2].tolist() == [9025, 2000]
    assert table.sizes[0, 12] == 9001


@pytest.mark.parametrize("rate", ["10", "15", "24000/1001", "25", "30000/1001", "30", "50", "60"])
def test_the_rate_of_a_sender_trace_is_that_of_its_times_in_whole_milliseconds(tmp_path, rate):
    path = tmp_path / "st"
    fps = Fraction(rate)
    path.write_text("".join(f"{n} I 100 1 {float(n / fps):.3f}\n" for n in range(300)))
    assert read_trace(path).fps == fps


def test_a_sender_trace_without_times_has_the_rate_that_is_given(tmp_path):
    path = tmp_path / "st"
    path.write_text("".join(f"{n} I 100 1 0\n" for n in range(3)))
    assert read_trace(path, 12).fps == 12


BAD_ST_LINES = {
    "a column too few": lambda line: line.rsplit("\t", 1)[0],
    "an unknown type": lambda line: line.replace("P", "X"),
    "a negative size": lambda line: line.replace("2000", "-2000"),
    "a word": lambda line: line.replace("2000", "many"),
    "no number": lambda line: line.replace("2000", "nan"),
    "a frame of no bytes": lambda line: line.replace("2000", "0"),
    "half a packet": lambda line: line.replace("\t2\t", "\t1.5\t"),
    "no packet": lambda line: line.replace("\t2\t", "\t0\t"),
    "a frame left out": lambda line: line.replace("18", "19", 1),
    "a time that goes back": lambda line: line.rsplit("\t", 1)[0] + "\t0.001",
    "an I frame in the middle": lambda line: line.replace("P", "I"),
    "a header before a P frame": lambda line: line.replace("P", "H"),
}


@pytest.mark.parametrize("change", BAD_ST_LINES.values(), ids=BAD_ST_LINES)
def test_a_bad_line_of_a_sender_trace_is_named_with_file_line_and_remedy(tmp_path, change):
    lines = _sender_trace().splitlines()
    changed = change(lines[17])
    assert changed != lines[17]
    lines[17] = changed
    path = tmp_path / "bad"
    path.write_text("\n".join(lines))
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert caught.value.place == f"{path}:18"
    assert caught.value.remedy
