"""The browser sees what is wrong with a page: the tests of pages rest on it."""

from __future__ import annotations

from pathlib import Path

from tests.browser import Browser

PAGE = """<!doctype html><meta charset=utf-8><title>t</title>
<style>:root { color-scheme: light dark } p { color: #767676; background: #fff } svg { background: #fff }
@media (prefers-color-scheme: dark) { p { color: #222; background: #111 } }</style>
<p>just readable</p><p style='color: #999'>too pale</p><p hidden style='color: #fff'>not shown</p>
<p><span style='color: #0008'>half of black</span></p><svg><text y='20' fill='#bbb'>drawn</text></svg>
<div style='width: 500px'>wide</div>"""


def test_it_sees_errors_overflow_and_contrast(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    browser.open(page)
    assert browser.errors() == []
    assert browser.overflow() == 0
    assert browser.low_contrast() == ["too pale: 2.85", "half of black: 4.48", "drawn: 1.92"]
    browser.look(400, "dark")
    assert 100 <= browser.overflow() <= 116  # the width of the box, its margin and the window's
    assert "just readable: 1.19" in browser.low_contrast()
    page.write_text(PAGE + "<script>undefined_name()</script>")
    browser.open(page)
    assert any("undefined_name" in line for line in browser.errors())
    picture = tmp_path / "page.png"
    browser.screenshot(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
