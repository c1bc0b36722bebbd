"""What a site's end hands out: an answer's bytes, or a bare code."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

pytest.importorskip("nvflare")

from nvflare.apis.shareable import Shareable

from coterie.engines.nvflare.site_end import SiteEnd
from coterie.engines.nvflare.wire import CODE, FRAME
from coterie.messages import codec
from coterie.messages.refusals import Refusal
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable


def _told(end: SiteEnd, frame: object) -> dict:
    request = Shareable()
    request[FRAME] = frame
    reply = dict(end._answered("", request, None))
    return {key: value for key, value in reply.items() if not key.startswith("__")}


def _end() -> SiteEnd:
    end = SiteEnd()
    end._site = Site("site-1", ArrayTable(np.ones((30, 2))))
    return end


@pytest.mark.parametrize("frame", [b"", b"garbage", bytes(200), b"\x01" * 5000])
def test_garbage_gets_a_refusal_of_the_site(frame):
    told = _told(_end(), frame)
    assert set(told) == {FRAME}
    assert codec.read_envelope(told[FRAME])[0] is codec.Form.REFUSAL
    assert told[FRAME][-1] == Refusal.MALFORMED


@pytest.mark.parametrize("frame", [None, "text", 7, ["list"], {"data": "/etc/passwd"}])
def test_what_is_no_bytes_gets_a_bare_code(frame):
    assert _told(_end(), frame) == {CODE: "malformed"}


def test_a_site_that_is_not_open_says_so_and_no_more():
    assert _told(SiteEnd(), b"garbage") == {CODE: "closed"}


def test_what_goes_wrong_in_between_stays_in_the_log(caplog):
    end = _end()
    end._site.answer = lambda _: (_ for _ in ()).throw(OSError("/data/patients.csv holds 4711"))
    assert _told(end, b"garbage") == {CODE: "failed"}
    assert "4711" in caplog.text


def test_a_job_has_nothing_to_tell_a_site_s_end():
    assert not inspect.signature(SiteEnd).parameters
