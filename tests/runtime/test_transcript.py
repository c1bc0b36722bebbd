"""The remembered requests of a run, site by site."""

from __future__ import annotations

from coterie.messages import codec
from coterie.runtime.transcript import Remembered, Transcript


def chained(*bodies: bytes) -> bytes:
    digest = codec.NO_TRANSCRIPT
    for body in bodies:
        digest = codec.extend_transcript(digest, body)
    return digest


def test_a_site_has_to_remember_what_was_meant_for_it_and_nothing_else():
    script = Transcript()
    script.add(Remembered(b"for all"))
    assert script.digest("a") == script.digest("b") == chained(b"for all")
    script.add(Remembered(b"for a", ("a",)))
    script.add(Remembered(b"for all again"))
    assert script.bodies("a") == [b"for all", b"for a", b"for all again"]
    assert script.bodies("b") == [b"for all", b"for all again"]
    assert script.digest("a") == chained(b"for all", b"for a", b"for all again")
    assert script.digest("b") == chained(b"for all", b"for all again")
    assert script.digest("a") == chained(*script.bodies("a"))


def test_nothing_remembered_is_no_transcript():
    assert Transcript().digest("a") == codec.NO_TRANSCRIPT
