"""Makes the picture of docs/lab.md, the lab's page with scenarios/home.toml, and prints its figures.

    .venv/bin/python scripts/lab.py

It needs the extra `dev` and Debian's package chromium.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "lab.png"
MEASURED = "() => document.querySelector('#status').textContent.includes('pictures measured')"
SLIDE = """async (value) => {
    const slider = document.querySelector('[data-key="Network/topology.bottleneck.rate"]');
    const status = document.querySelector('#status');
    const began = performance.now();
    const painted = new Promise((done) => new MutationObserver((_, watch) => {
        if (!status.textContent.includes('simulated')) return;
        watch.disconnect();
        requestAnimationFrame(() => setTimeout(done));
    }).observe(status, { subtree: true, childList: true, characterData: true }));
    slider.value = value;
    slider.dispatchEvent(new Event('input'));
    await painted;
    return performance.now() - began;
}"""


def main() -> None:
    """Start a lab, and take its picture."""
    command = [str(Path(sys.executable).with_name("steadycast")), "lab", "--no-browser"]
    with subprocess.Popen(
        [*command, str(ROOT / "scenarios" / "home.toml")], stdout=subprocess.PIPE, text=True
    ) as lab:
        assert lab.stdout is not None
        address = lab.stdout.readline().removeprefix("lab: ").strip()
        try:
            with sync_playwright() as play:
                browser = play.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                take(browser, address)
                measure(browser, address)
        finally:
            lab.send_signal(signal.SIGINT)


def take(browser: Any, address: str) -> None:
    """Save the page's picture, with the pointer over the first chart."""
    page = browser.new_page(viewport={"width": 1280, "height": 1180})
    page.set_default_timeout(120_000)
    page.goto(address)
    page.wait_for_function(MEASURED)
    box = page.locator("#rates .u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60)
    page.wait_for_selector("#pointer .t")
    page.screenshot(path=PICTURE)
    with Image.open(PICTURE) as picture:
        picture.convert("RGB").quantize(256).save(PICTURE, optimize=True)
    print(PICTURE)


def measure(browser: Any, address: str) -> None:
    """Print the loading times of the page, its charts and its film, and the size of the page."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    sizes: list[int] = []
    page.on(
        "response",
        lambda got: None if "/api/" in got.url else sizes.append(int(got.headers["content-length"])),
    )
    began = time.perf_counter()
    page.goto(address)
    page.wait_for_selector("#numbers table")
    print(f"page with its first charts: {time.perf_counter() - began:.1f} s")
    page.wait_for_function(MEASURED)
    took = sorted(page.evaluate(SLIDE, 100 + 3 * n) for n in range(15))
    print(f"slider to painted charts: median {took[7]:.0f} ms, worst of 15 {took[-1]:.0f} ms")
    page.wait_for_function(MEASURED)
    print(f"page, script and styles: {sum(sizes) / 1000:.0f} kB")
    began = time.perf_counter()
    page.click("#make-film")
    page.wait_for_function("() => document.querySelector('#video').readyState >= 2")
    print(f"film of 60 s, three pictures: {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
