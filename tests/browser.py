"""A headless Chromium for tests of pages: one in a test session, looked at as a person does."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)

Scheme = Literal["light", "dark"]

LOW_CONTRAST = """
const low = [], canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
canvas.canvas.width = canvas.canvas.height = 1;
function parts(colour) {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
}
function over(top, below) {
  return [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat([1]);
}
function light(colour) {
  const [r, g, b] = colour.map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
}
function behind(element) {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    const colour = parts(getComputedStyle(at).backgroundColor);
    layers.push(colour); if (colour[3] === 1) break;
  }
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
}
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.data.trim(), element = walker.currentNode.parentElement;
  if (!text || !element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
  if (['SCRIPT', 'STYLE', 'TITLE', 'DESC'].includes(element.tagName.toUpperCase())) continue;
  const style = getComputedStyle(element), inside = element instanceof SVGElement;
  const below = behind(element), ink = over(parts(inside ? style.fill : style.color), below);
  const [a, b] = [light(ink), light(below)].sort((x, y) => y - x), ratio = (a + .05) / (b + .05);
  if (ratio < arguments[0]) low.push(`${text.slice(0, 60)}: ${ratio.toFixed(2)}`);
}
return low;
"""
"""The texts whose contrast with what is behind them is below a ratio (WCAG 2)."""


class Browser:
    """Chromium with what tests of pages need beside Selenium's ``driver``."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path | str, *, width: int = 1200, scheme: Scheme = "light") -> None:
        """Show a file or an address, without messages of an earlier page."""
        self.look(width, scheme)
        self.driver.get_log("browser")
        self.driver.get(page.absolute().as_uri() if isinstance(page, Path) else page)

    def look(self, width: int, scheme: Scheme, height: int = 900) -> None:
        """Set the width of the window, and whether the person prefers light or dark pages."""
        self._command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        self._command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def errors(self) -> list[str]:
        """Errors and warnings of the console since the last call."""
        return [
            entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
        ]

    def run(self, script: str, *values: Any) -> Any:
        """What a script's ``return`` gives."""
        return self.driver.execute_script(script, *values)

    def all(self, selector: str) -> list[Any]:
        """Elements by a CSS selector."""
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        """The only element of a CSS selector."""
        (element,) = self.all(selector)
        return element

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(self.run("const e = document.documentElement; return e.scrollWidth - e.clientWidth"))

    def low_contrast(self, ratio: float = 4.5) -> list[str]:
        """Visible texts with less contrast than a ratio, and their contrast."""
        return list(self.run(LOW_CONTRAST, ratio))

    def screenshot(self, path: Path) -> None:
        """The whole page, as a picture."""
        image = self._command("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(image["data"]))

    def _command(self, name: str, **values: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, values)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium; a test is skipped where Chromium, its driver or Selenium is missing."""
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        pytest.skip(f"tests of pages need {' and '.join(missing)}; install them (Debian: chromium, chromium-driver)")
    pytest.importorskip("selenium", reason="tests of pages need Selenium: pip install selenium")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(programs["chromedriver"]))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
