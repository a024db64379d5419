"""The page of `serve` over HTTPS: with its own certificate, behind nginx, and embedded into another site's page."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from steadycast.errors import UserError

pytest.importorskip("starlette", reason="the extra serve is not installed")
from steadycast import web

from tests.conftest import CHROMIUM, bounded, needs_chromium, ran, started, until
from tests.live.conftest import needs, ports, steadycast

NAME = "video.example.test"
PLAYS = "() => document.querySelector('video').currentTime > 0.2"

pytestmark = needs("openssl")


@dataclass(frozen=True)
class Pem:
    """A self-signed certificate and its key."""

    certificate: Path
    key: Path

    @property
    def words(self) -> tuple[str, ...]:
        return "--certificate", str(self.certificate), "--key", str(self.key)


def made(folder: Path, *more: str) -> Pem:
    """Make a certificate for `NAME` and 127.0.0.1."""
    pem = Pem(folder / "certificate.pem", folder / "key.pem")
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-days",
        "2",
    ]
    words += [
        "-keyout",
        str(pem.key),
        "-out",
        str(pem.certificate),
        "-subj",
        f"/CN={NAME}",
        *(more or ["-nodes"]),
    ]
    ran([*words, "-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1"], code=0)
    pem.key.chmod(0o600)
    return pem


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    return made(tmp_path_factory.mktemp("pem"))


def test_what_is_no_certificate_with_its_key_is_an_error(pem: Pem, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "secret").mkdir()
    other, secret = made(tmp_path / "other"), made(tmp_path / "secret", "-passout", "pass:word")
    shown, text = tmp_path / "shown.pem", tmp_path / "text.pem"
    shown.write_bytes(pem.key.read_bytes())
    shown.chmod(0o644)
    text.write_text("no certificate")
    web.tls(pem.certificate, pem.key)
    for certificate, key, what in (
        (pem.certificate, other.key, "no certificate with its key"),
        (text, pem.key, "no certificate with its key"),
        (secret.certificate, secret.key, "it has a password"),
        (pem.certificate, shown, "other users can read this key"),
        (pem.certificate, tmp_path, "can't be read"),
        (tmp_path / "none", pem.key, "can't be read"),
    ):
        with pytest.raises(UserError, match=what):
            web.tls(certificate, key)


def by_https(
    pem: Pem, places: web.Places, asks: Callable[[tuple[str, int]], Coroutine[Any, Any, None]]
) -> None:
    """Serve a page over HTTPS in this process while `asks` runs with its address."""

    async def served() -> None:
        app = web.application(web.file_routes({"/": ("steadycast.serve", "serve.html")}))
        context = web.tls(pem.certificate, pem.key)
        with web.listener("127.0.0.1", 0) as at:
            server = asyncio.create_task(web.serve(app, at, lambda: None, places=places, encrypted=context))
            await asyncio.wait_for(asks(at.getsockname()), 60)
            os.kill(os.getpid(), signal.SIGINT)
            await server

    asyncio.run(served())


async def page_of(
    address: tuple[str, int],
    pem: Pem,
    *,
    parts: int = 1,
    version: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
) -> bytes:
    """Request the page with a client that trusts the certificate. The request is sent in this number of parts."""
    context = ssl.create_default_context(cafile=str(pem.certificate))
    context.maximum_version = version
    reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname="127.0.0.1")
    request = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    size = -(-len(request) // parts)
    for start in range(0, len(request), size):
        writer.write(request[start : start + size])
        await writer.drain()
        await asyncio.sleep(0)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_page_comes_by_https_and_other_protocols_are_closed(
    pem: Pem, monkeypatch: pytest.MonkeyPatch, version: ssl.TLSVersion
) -> None:
    monkeypatch.setattr(web, "_HEAD_S", 2.0)
    places = web.Places()

    async def asked(address: tuple[str, int]) -> None:
        silent = [await asyncio.open_connection(*address) for _ in range(10)]
        plain = await asyncio.open_connection(*address)
        plain[1].write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        for parts in (1, 2, 7, 64):
            answer = await page_of(address, pem, parts=parts, version=version)
            assert answer.startswith(b"HTTP/1.1 200 OK")
            assert answer.endswith(b"</html>\n")
        for reader, _ in (plain, *silent):
            with suppress(ConnectionResetError):
                assert b"200 OK" not in await reader.read()

    by_https(pem, places, asked)
    assert places.closed == 0


def test_connections_without_a_handshake_do_not_keep_others_out(pem: Pem) -> None:
    places = web.Places(total=20)

    async def asked(address: tuple[str, int]) -> None:
        silent = [await asyncio.open_connection(*address) for _ in range(60)]
        for _ in range(5):
            assert (await page_of(address, pem)).startswith(b"HTTP/1.1 200 OK")
        for _, writer in silent:
            writer.close()

    by_https(pem, places, asked)
    assert places.closed >= 40


@pytest.fixture(scope="module")
def named_browser() -> Iterator[Any]:
    """A browser that resolves every name below .test to this machine."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as play:
        # Root can start Chromium only without its sandbox. The pages are our own.
        words = ["--no-sandbox", "--host-resolver-rules=MAP *.test 127.0.0.1"]
        running = play.chromium.launch(executable_path=CHROMIUM, args=words)
        yield running
        running.close()


@contextmanager
def serving(*words: object) -> Iterator[str]:
    """Serve the test pattern with these options; yields the printed address."""
    with started(steadycast("serve", "testsrc", "--size", "320x180", *words)) as process:
        assert process.stdout is not None
        with bounded(process):
            line = process.stdout.readline().strip()
            assert line.startswith("https://"), process.stderr.read() if process.stderr else line
            yield line
            process.send_signal(signal.SIGINT)
            process.wait(30)


@needs_chromium
def test_a_browser_plays_by_https_with_the_servers_own_certificate(named_browser: Any, pem: Pem) -> None:
    listen, media = ports(2)
    words = ["--listen", f"127.0.0.1:{listen}", "--media-port", media, *pem.words]
    url = f"https://{NAME}:{listen}"
    named = ["--public-url", url, "--media-address", "127.0.0.1"]
    for more, start in (([], f"https://127.0.0.1:{listen}/#token="), (named, f"{url}/#token=")):
        with serving(*words, *more) as shown:
            assert shown.startswith(start)
            context = named_browser.new_context(ignore_https_errors=True)
            page = context.new_page()
            page.goto(shown)
            page.wait_for_function(PLAYS)
            assert page.evaluate("() => isSecureContext")
            context.close()


NGINX = """
{user}daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    ssl_certificate {pem.certificate};
    ssl_certificate_key {pem.key};
    server {{
        listen 127.0.0.1:{ports[0]} ssl;
        location /cam/ {{
            proxy_pass http://127.0.0.1:{listen}/;
            proxy_set_header Host $http_host;
        }}
    }}
    server {{
        listen 127.0.0.1:{ports[1]} ssl;
        listen 127.0.0.1:{ports[2]} ssl;
        root {folder}/site;
    }}
}}
"""


@pytest.fixture
def proxy(tmp_path: Path, pem: Pem) -> Iterator[tuple[int, list[int]]]:
    """Nginx with three ports: `serve` below /cam/ under a name, and an operator's page with two origins."""
    listen, *own = ports(4)
    user = "user root;\n" if os.geteuid() == 0 else ""  # its worker processes read the test's folder
    (tmp_path / "site").mkdir()
    (tmp_path / "nginx.conf").write_text(
        NGINX.format(user=user, folder=tmp_path, pem=pem, ports=own, listen=listen)
    )
    words = ["nginx", "-e", str(tmp_path / "error.log"), "-c", str(tmp_path / "nginx.conf")]
    with subprocess.Popen(words) as process:
        until(lambda: process.poll() is not None or (tmp_path / "nginx.pid").exists())
        assert process.poll() is None, (tmp_path / "error.log").read_text()
        yield listen, own
        process.terminate()


EMBEDS = """<!doctype html><title>operator</title><iframe src="{page}" allow="autoplay"></iframe>
<script type="module">
const answer = await fetch("{api}/api/viewers", {{headers: {{authorization: "Bearer {token}"}}}}).catch(() => null);
window.told = answer && answer.ok ? (await answer.json()).source : "refused";
</script>"""


@needs_chromium
@needs("nginx")
def test_a_browser_plays_behind_nginx_by_https_and_a_name_and_a_named_site_embeds_it(
    named_browser: Any, proxy: tuple[int, list[int]], tmp_path: Path
) -> None:
    listen, (public, friend, other) = proxy
    (media,) = ports(1)
    url, site = f"https://{NAME}:{public}/cam", f"https://operator.test:{friend}"
    words = ["--listen", f"127.0.0.1:{listen}", "--media-port", media, "--media-address", "127.0.0.1"]
    with serving(*words, "--public-url", url, "--allow-origin", site, "--viewers", "3") as shown:
        base, _, token = shown.partition("#token=")
        assert base == f"{url}/"
        (tmp_path / "site" / "index.html").write_text(EMBEDS.format(page=shown, api=url, token=token))
        context = named_browser.new_context(ignore_https_errors=True)
        page = context.new_page()
        page.goto(shown)
        page.wait_for_function(PLAYS)
        # A new session, which ends the previous one at its public address.
        page.click("#again")
        page.wait_for_function("() => document.querySelectorAll('#viewers tr.gone').length === 1")
        page.wait_for_function(PLAYS)
        embeds = context.new_page()
        embeds.goto(f"{site}/")
        embeds.wait_for_function("() => window.told === 'testsrc'")
        (frame,) = (each for each in embeds.frames if each.parent_frame is not None)
        frame.wait_for_function(PLAYS)
        # From another origin, the same page can neither read an answer nor show the player.
        foreign = context.new_page()
        foreign.goto(f"https://operator.test:{other}/")
        foreign.wait_for_function("() => window.told === 'refused'")
        (frame,) = (each for each in foreign.frames if each.parent_frame is not None)
        assert frame.locator("video").count() == 0
        context.close()
