"""The interfaces for monitoring a live session from other programs."""

from __future__ import annotations

import json
import re
import select
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from steadycast import web
from steadycast.errors import MissingError, UserError
from steadycast.live import outlets
from steadycast.live.outlets import PEERS, RECEIVER, SENDER, Options, Outlets

from tests.conftest import ROOT, ran, until
from tests.live.conftest import needs, ports, run
from tests.live.test_endings import start

PACKAGING = ROOT / "packaging"


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    ("host", "asked", "meant"),
    [
        ("127.0.0.1", "127.0.0.1:9464", True),
        ("127.0.0.1", "localhost:9464", True),
        ("127.0.0.1", "[::1]:9464", True),
        ("::1", "[::1]:9464", True),
        ("127.0.0.1", "", True),
        ("127.0.0.1", "evil.example:9464", False),
        ("127.0.0.1", "10.0.0.1:9464", False),
        ("localhost", "evil.example", False),
        ("0.0.0.0", "sender.example:9464", True),  # a client that the operator admits may use any name
    ],
)
def test_a_page_of_another_name_reads_nothing_of_this_machine(host: str, asked: str, meant: bool) -> None:
    assert outlets._meant(asked, host) is meant


def test_the_first_page_leads_to_the_others_and_another_name_is_refused() -> None:
    (port,) = ports(1)
    with Outlets(Options(str(port), None, None), "send", "x"):
        assert '<a href="/metrics">' in get(port, "/")
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/status.json", headers={"Host": "evil.example"}
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        refused.value.close()
        assert refused.value.code == 421


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by metric name, and by the labels other than those of the session."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        values = found.setdefault(family.name, {})
        for sample in family.samples:
            labels = tuple(value for name, value in sample.labels.items() if name != "session")
            assert labels not in values
            values[labels] = sample.value
    return found


def peer(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "ssrc": number, "name": f"viewer-{number}", "address": f"10.0.0.1:{number}", "ours": True, "left": False,
        "packets": False, "aside": None, "silent_s": 0.5, "reports": 3, "rtt_ms": 40.0, "loss_frac": 0.01,
        "jitter_ms": 2.0,
    } | changes  # fmt: skip


def status(peers: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    decision = {"target_bps": 2e6, "pacing_bps": 2e6, "limit": "network", "at_floor": False, "rule": "equation",
                "loss": 0.01, "rtt_ms": 40.0, "by": None}  # fmt: skip
    return {
        "at_s": 10.0, "rate_bps": 1.9e6, "decision": decision, "backlog_ms": 3.0, "packets": 2000, "bytes": 2_000_000,
        "frames": 250, "skipped_frames": 1, "left_out": 0, "no_room": 0, "size": None, "quantizer": 5, "feedback": 30,
        "feedback_refused": 0, "ecn": None, "floor_bps": 5e4, "refused": 0, "unsent": 0, "unreadable": 0,
        "peers": peers,
    } | changes  # fmt: skip


def test_both_ends_are_seen_while_they_run(tmp_path: Path) -> None:
    (port,), (mine, its) = ports(1), ports(2)
    sdp, seen, events = (tmp_path / name for name in ("s.sdp", "status.jsonl", "events.jsonl"))
    sender = start(
        "send", "testsrc", "--size", "176x144", "--to", f"127.0.0.1:{port}", "--sdp", sdp, "--for", "60s", "--json",
        "--metrics", str(mine), "--status", seen, "--events", events,
    )  # fmt: skip
    receiver = None
    try:
        until(sdp.exists, "no description")
        receiver = start(
            "receive", sdp, "--name", "wall", "--metrics", f":{its}", "--status", "-", "--for", "60s"
        )

        def told(metric: str, at: int) -> dict[tuple[str, ...], float]:
            try:
                return samples(get(at, "/metrics")).get(metric, {})
            except urllib.error.URLError:
                return {}

        until(lambda: told("steadycast_receivers", mine).get(("packets",)) == 1.0, "no receiver is told")
        until(lambda: told("steadycast_frames_received", its).get(("whole",), 0) > 10, "no frame is told")
        received, sent = samples(get(its, "/metrics")), samples(get(mine, "/metrics"))
        assert list(sent) == [metric.name for metric in SENDER]
        assert list(received) == [metric.name for metric in RECEIVER]
        (labels,) = sent["steadycast_receiver_silent_seconds"]
        assert labels[0] == "wall"
        # The figures of the two ends differ by a moment, so wait until they match.
        came, left = received["steadycast_packets_received"][()], sent["steadycast_packets"][()]
        assert min(came, left) > 0
        until(lambda: told("steadycast_packets", mine)[()] >= came, "more came than was sent")
        until(lambda: told("steadycast_packets_received", its)[()] >= left, "less came than was sent")
        assert 40 < sent["steadycast_bytes"][()] / sent["steadycast_packets"][()] < 1200
        assert sum(sent["steadycast_limited_seconds"].values()) == pytest.approx(
            sent["steadycast_uptime_seconds"][()], abs=1.5
        )
        shown = json.loads(get(mine, "/status.json"))
        assert (shown["format"], shown["kind"], shown["session"]) == (1, "status", f"127.0.0.1:{port}")
        assert get(mine, "/healthz") == "ok\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(mine, "/other")
    finally:
        sender.terminate()
        out, err = sender.communicate(timeout=60)
        if receiver is not None:
            receiver.terminate()
            heard, _ = receiver.communicate(timeout=60)
    assert sender.returncode == 0, err
    lines = [json.loads(line) for line in seen.read_text().splitlines()]
    packets = [line["packets"] for line in lines]
    assert packets == sorted(packets)
    assert 0 < packets[-1] <= json.loads(out)["flows"][0]["sent_packets"]
    names = [json.loads(line)["event"] for line in events.read_text().splitlines()]
    assert {"decision", "join"} <= set(names)
    assert names[-1] == "end"
    first = json.loads(next(line for line in heard.splitlines() if line.startswith("{")))
    assert first["command"] == "receive"


def test_what_is_asked_for_wrongly_is_refused_before_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = f"127.0.0.1:{ports(1)[0]}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = str(taken.getsockname()[1])
        for more in (("--metrics", number), ("--metrics", "here"), ("--metrics", "127.0.0.1:0")):
            done = run("send", "greedy", "--to", to, *more, code=2)
            assert "--metrics" in done.stderr
            assert "sending" not in done.stderr
    run("send", "greedy", "--to", to, "--events", tmp_path / "no" / "such" / "folder", code=4)
    assert "--json has standard output" in run("receive", to, "--status", "-", "--json", code=2).stderr
    for package in ("prometheus_client", "starlette.routing"):
        with monkeypatch.context() as absent:
            absent.setitem(sys.modules, package, None)
            with pytest.raises(MissingError, match=r"steadycast\[metrics\]"):
                Outlets(Options(metrics=str(ports(1)[0])), "send", "x")


@given(
    host=st.sampled_from(["", "127.0.0.1", "[::1]", "0.0.0.0"]),
    number=st.integers(0, 70_000) | st.sampled_from([0, 1, 65_535, 65_536, 10**30]),
)
def test_a_port_that_does_not_exist_is_refused_with_the_range(host: str, number: int) -> None:
    text = f"{host}:{number}" if host else f"{number}"
    if 1 <= number <= 65_535:
        assert outlets.address("--listen", text, 8080) == (host.strip("[]") or "127.0.0.1", number)
        return
    with pytest.raises(UserError) as refused:
        outlets.address("--listen", text, 8080)
    assert str(refused.value) == (
        f"--listen {text}: ports go from 1 to 65535; write for example 127.0.0.1:8080"
    )


@pytest.mark.parametrize("text", ["here", "127.0.0.1:", "127.0.0.1:-1", "1.2.3.4:9464x", ""])
def test_a_text_without_a_port_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match=r"not ADDRESS:PORT; write for example 127\.0\.0\.1:9464"):
        outlets.address("--metrics", text, 9464)


def test_an_address_of_another_machine_is_refused_with_both_remedies() -> None:
    # This address is for documentation (RFC 5737), so no machine has it.
    with pytest.raises(UserError, match="take another address or port"):
        Outlets(Options(metrics=f"192.0.2.1:{ports(1)[0]}"), "send", "x")


@pytest.mark.parametrize("viewers", [0, 1, 3])
def test_a_server_s_status_is_one_document_and_its_metrics_count_its_viewers(viewers: int) -> None:
    (port,) = ports(1)
    sessions = [Outlets(Options(), "send", f"viewer {number}", alone=False) for number in range(viewers)]
    with outlets.several(Options(metrics=str(port)), lambda: sessions):
        for session in sessions:
            session.look(status([peer(1)]))
        shown = json.loads(get(port, "/status.json"))
        assert [each["session"] for each in shown] == [each.session for each in sessions]
        assert f"\nsteadycast_viewers {viewers:.1f}\n" in get(port, "/metrics")


def answers(port: int) -> bool:
    try:
        return get(port, "/healthz") == "ok\n"
    except OSError:
        return False


def test_readers_beyond_sixteen_are_closed_at_once_and_the_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "_HEAD_S", 120.0)
    (port,) = ports(1)
    with Outlets(Options(metrics=str(port)), "send", "x"), ExitStack() as all_:
        readers = [
            all_.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(20)
        ]

        def closed() -> list[socket.socket]:
            # A client that has sent no request only receives the end of the connection.
            return select.select(readers, [], [], 0)[0]

        until(lambda: len(closed()) == 4, "four are not closed")
        gone = closed()
        for reader in readers:
            if reader not in gone:
                reader.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                with reader.makefile("rb") as answer:
                    assert answer.read().endswith(b"ok\n")
        until(lambda: answers(port), "no place is given back")


def test_a_reader_that_goes_on_with_its_request_for_ever_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_HEAD_S", 0.5)
    (port,) = ports(1)
    with (
        Outlets(Options(metrics=str(port)), "send", "x"),
        socket.create_connection(("127.0.0.1", port), timeout=60) as reader,
    ):
        reader.sendall(b"GET /")

        def closed() -> bool:
            try:
                reader.sendall(b"x")
                return bool(select.select([reader], [], [], 0)[0])
            except OSError:
                return True

        until(closed, "it is not closed")
        until(lambda: answers(port), "nobody else is answered")


def test_the_event_of_an_ignored_receiver_has_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with Outlets(Options(events=path), "send", "a") as seen:
        seen.look(status([peer(1), peer(2, aside="it does not show that it receives the stream")]))
        seen.look(status([peer(1, aside="excluded"), peer(2)], at_s=11.0))
    events = [json.loads(line) for line in path.read_text().splitlines()]
    reasons = [(event["event"], event.get("why")) for event in events if event.get("receiver")]
    assert reasons == [
        ("join", None), ("aside", "it does not show that it receives the stream"), ("aside", "excluded"),
        ("heard again", None),
    ]  # fmt: skip


def test_made_up_receivers_fill_neither_labels_nor_files(tmp_path: Path) -> None:
    (port,) = ports(1)
    files = {"status": str(tmp_path / "status"), "events": tmp_path / "events"}
    many = [peer(n, name="x" * 500) for n in range(5000)]
    many[4321] = peer(4321, name='the "worst"\n one', loss_frac=0.5)
    by = {**status([])["decision"], "by": "viewer-9"}
    many[9] = peer(9)
    with Outlets(Options(str(port), **files), "send", "a") as seen:  # type: ignore[arg-type]
        seen.look(status(many, decision=by))
        seen.look(status([], at_s=11.0))
        seen.look(status(many, at_s=12.0, decision=by))
        text = get(port, "/metrics")
    assert len(text) < 64_000
    found = samples(text)
    labels = list(found["steadycast_receiver_loss_ratio"])
    assert len(labels) == PEERS
    assert [name for name, _ in labels[:2]] == ["viewer-9", 'the "worst"\n one']
    assert {len(name) for name, _ in labels[2:]} == {outlets.NAME}
    assert found["steadycast_receivers_untold"][()] == 5000 - PEERS
    assert found["steadycast_receivers"][("ours",)] == 5000
    (line,) = (tmp_path / "status").read_text().splitlines()
    assert len(json.loads(line)["peers"]) == PEERS
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    joined, forgotten = (
        [
            [event[key] for key in ("receiver", "ssrc", "address")]
            for event in events
            if event["event"] == name
        ]
        for name in ("join", "forgotten")
    )
    assert forgotten == joined[:PEERS]
    told = [event["event"] for event in events]
    assert told.count("join") == 2 * PEERS
    assert told.count("forgotten") == PEERS
    assert told.count("more receivers changed") == 3


def test_time_is_counted_for_what_limits_and_changes_are_told_with_their_reason(tmp_path: Path) -> None:
    events = tmp_path / "events"
    breaker = {**status([])["decision"], "limit": "floor", "rule": "circuit breaker, halved: no report"}
    with Outlets(Options(events=events), "send", "a") as seen:
        seen.look(None)
        for at, decision in ((1.0, None), (2.0, status([])["decision"]), (4.5, breaker), (5.0, breaker)):
            gone = [peer(1, left=at > 4)]
            seen.look(status(gone, at_s=at, decision=decision))
        found = {metric.name: values for metric, values in seen.metrics()}
    assert dict((labels["by"], value) for labels, value in found["steadycast_limited_seconds"]) == {
        "start": 0.0, "network": 1.0, "encoder": 0.0, "cap": 0.0, "floor": 3.0,
    }  # fmt: skip
    assert found["steadycast_breaker_open"] == [({}, 1.0)]
    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert [each["event"] for each in told] == ["join", "decision", "decision", "left", "end"]
    assert told[2]["rule"] == "circuit breaker, halved: no report"
    assert all(each["at"].endswith("Z") for each in told)


def test_a_full_disk_is_told_once_and_the_session_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with Outlets(Options(status="/dev/full", events=Path("/dev/full")), "send", "a") as seen:
        for at in (1.0, 2.0, 3.0):
            seen._next = 0.0
            seen.look(status([peer(int(at))], at_s=at))
    said = capsys.readouterr().err
    assert said == "/dev/full: nothing more is written here (No space left on device)\n" * 2


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_how_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    name = f"\0{tmp_path}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name)
        systemd.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name.replace("\0", "@"))
        monkeypatch.setattr(outlets, "EVERY_S", 0.0)
        with Outlets(Options(), "send", "a") as seen:
            seen.begun()
            for at_s in (10.0, 11.0, 11.0):
                seen.look(status([peer(1)], at_s=at_s))
        told = [systemd.recv(1000).decode().splitlines() for _ in range(5)]
    assert (told[0], told[-1]) == (["READY=1"], ["STOPPING=1"])
    assert [each[0][:30] for each in told[1:4]] == [
        f"STATUS={at} s  sending 1.90 Mb/s" for at in (10, 11, 11)
    ]
    # The last status has not changed, because the session is stopped; the watchdog gets no keep-alive.
    assert [each[1:] for each in told[1:4]] == [["WATCHDOG=1"], ["WATCHDOG=1"], []]


def dashboard() -> dict[str, Any]:
    return dict(json.loads((PACKAGING / "grafana" / "steadycast.json").read_text()))


def alerts() -> list[str]:
    return re.findall(r"expr: (.*)", (PACKAGING / "prometheus" / "steadycast.rules.yml").read_text())


def expressions() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            # Grafana's substitution: its interval for rates is at least four times the scrape interval.
            yield target["expr"].replace("$session", ".*").replace("$__rate_interval", "1m")
    yield from alerts()


def test_the_dashboards_panels_have_titles_units_and_places_of_their_own() -> None:
    shown = dashboard()
    source, session = shown["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("source", "datasource", "prometheus")
    assert (session["name"], session["type"]) == ("session", "query")
    panels = shown["panels"]
    assert len(panels) == 8
    for key in ("id", "title"):
        assert len({panel[key] for panel in panels}) == len(panels)
    cells = []
    for panel in panels:
        place = panel["gridPos"]
        assert min(place["w"], place["h"]) >= 4
        assert 0 <= place["x"] <= place["x"] + place["w"] <= 24  # the number of Grafana's columns
        cells += [
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert panel["title"].strip()
        assert panel["fieldConfig"]["defaults"]["unit"] in {"bps", "percentunit", "s", "short"}
        for part in (panel, session):
            assert part["datasource"] == {"type": "prometheus", "uid": "${source}"}
        assert [target["refId"] for target in panel["targets"]] == list("ABC"[: len(panel["targets"])])
        for target in panel["targets"]:
            assert 'session=~"$session"' in target["expr"]
            assert "{{" in target["legendFormat"]
    assert len(set(cells)) == len(cells), "panels overlap"
    assert len(cells) == 24 * (1 + max(y for _, y in cells)), "the grid has holes"


def test_dashboard_and_alerts_name_metrics_that_are_told() -> None:
    known = {m.name + ("_total" if m.kind == "counter" else "") for m in (*SENDER, *RECEIVER)}
    for expression in expressions():
        assert set(re.findall(r"steadycast_\w+", expression)) <= known


@needs("promtool")
def test_promtool_takes_the_alerts_and_the_metrics() -> None:
    rules = PACKAGING / "prometheus" / "steadycast.rules.yml"
    subprocess.run(["promtool", "check", "rules", rules], check=True, capture_output=True)
    # A receiver without packets raises an alert, whether or not it had packets before.
    subprocess.run(["promtool", "test", "rules", Path(__file__).with_name("alerts.yml")], check=True)
    (port,) = ports(1)
    with Outlets(Options(str(port)), "send", "a") as seen:
        seen.look(status([peer(1)]))
        text = get(port, "/metrics")
    done = ran(["promtool", "check", "metrics"], input=text)
    # Rates are in bits, as everywhere else. This is the only deviation from Prometheus's conventions.
    found = [line for line in done.stderr.splitlines() if 'base unit "bytes" instead of "bits"' not in line]
    assert [line for line in found if line.strip()] == [], done.stderr


@needs("prometheus")
def test_prometheus_scrapes_a_session_and_answers_what_dashboard_and_alerts_ask(tmp_path: Path) -> None:
    (port,), (mine, its, web) = ports(1), ports(3)
    (tmp_path / "prometheus.yml").write_text(
        f"global: {{ scrape_interval: 500ms, scrape_timeout: 500ms }}\n"
        f"rule_files: [ {PACKAGING}/prometheus/steadycast.rules.yml ]\n"
        "scrape_configs:\n  - job_name: s\n"
        f"    static_configs: [ {{ targets: ['127.0.0.1:{mine}', '127.0.0.1:{its}'] }} ]\n"
    )

    def ask(query: str) -> list[Any]:
        try:
            answer = json.loads(get(web, f"/api/v1/query?query={urllib.parse.quote(query)}"))
        except OSError:
            return []  # the server has not started yet
        assert answer["status"] == "success"
        return list(answer["data"]["result"])

    def unanswered() -> list[str]:
        # An alert that does not fire has no samples, so the compared expression is queried.
        asked = [re.sub(r" (==|>) [\d.]+( and .*)?$", "", expression) for expression in expressions()]
        return [query for query in asked if not ask(query)]

    sdp = tmp_path / "s.sdp"
    words = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    words += [f"--web.listen-address=127.0.0.1:{web}", "--log.level=error"]
    running: list[subprocess.Popen[Any]] = [subprocess.Popen(words)]
    try:
        to = ("--to", f"127.0.0.1:{port}", "--sdp", sdp, "--for", "120s", "--metrics", str(mine))
        running.append(start("send", "testsrc", "--size", "176x144", *to))
        until(sdp.exists, "no description")
        running.append(start("receive", sdp, "--name", "wall", "--for", "120s", "--metrics", str(its)))
        until(lambda: ask('steadycast_frames_received_total{fate="whole"} > 10') != [], "no frame is told")
        for _ in range(100):
            if not (left := unanswered()):
                break
            time.sleep(0.2)
        assert left == []

        # If a scrape is late, its values are missing for a moment.
        def labels(name: str, metric: str) -> set[str]:
            return {each["metric"][name] for each in ask(metric)}

        until(lambda: labels("receiver", "steadycast_receiver_rtt_seconds") == {"wall"}, "no such receiver")
        # The dashboard's choice of sessions.
        until(lambda: len(labels("session", "steadycast_uptime_seconds")) == 2, "not two sessions")
    finally:
        for process in reversed(running):
            process.terminate()
            process.communicate(timeout=60)


@needs("systemd-analyze")
@pytest.mark.parametrize("end", ["send", "receive"])
def test_systemd_takes_the_units_and_finds_them_shut_in(end: str, tmp_path: Path) -> None:
    unit = tmp_path / f"steadycast-{end}@.service"
    text = (PACKAGING / "systemd" / unit.name).read_text()
    unit.write_text(text.replace("/opt/steadycast/bin/steadycast", sys.executable))
    words = ["systemd-analyze", "--man=no", "verify", str(unit)]
    done = ran(words)
    assert (done.returncode, done.stderr) == (0, "")
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=30", str(unit)]
    done = ran(words)
    assert done.returncode == 0, done.stdout
