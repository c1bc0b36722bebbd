"""Sealed lines: whatever is done to them afterwards shows."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import LedgerBroken
from coterie.messages.chain import START, Chain, head_path, read_chain, read_open_chain, seal

LINES = [
    {"event": "answer", "round": 0, "frame": "AAECAwQ="},
    {"event": "resend", "round": 0, "note": 'quotes " and ,"chain":" inside'},
    {"event": "refusal", "round": 1, "nested": {"a": 1, "chain": "x"}, "text": "größe\n"},
    {"event": "answer", "round": 2, "frame": ""},
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a chain of four lines lies."""
    return written(tmp_path / "ledger.jsonl", LINES)


def written(path: Path, lines: list[dict]) -> Path:
    chain = Chain(path)
    for line in lines:
        chain.append(line)
    chain.close()
    return path


def reopened(path: Path) -> tuple[Chain, list[dict]]:
    chain = Chain(path)
    return chain, [line for _, line in chain.reopen()]


def without_seals(lines: list[dict]) -> list[dict]:
    return [{name: value for name, value in line.items() if name != "chain"} for line in lines]


def assert_broken(path: Path) -> None:
    """Reading and going on are both refused."""
    with pytest.raises(LedgerBroken):
        read_chain(path)
    with pytest.raises(LedgerBroken):
        reopened(path)


# ---------------------------------------------------------------- writing and reading


def test_lines_come_back_as_they_were_written(path):
    found = read_chain(path)
    assert without_seals(found) == LINES
    chain, again = reopened(path)
    assert again == found
    assert (chain.n_lines, chain.head, chain.size) == (4, found[-1]["chain"], path.stat().st_size)


def test_every_seal_is_the_hash_of_the_seal_before_and_the_line(path):
    previous = START
    for plain, line in zip(LINES, read_chain(path), strict=True):
        previous = seal(previous, msgspec.json.encode(plain))
        assert line["chain"] == previous


def test_a_chain_goes_on_behind_its_last_line(path):
    for number in range(3):
        chain, found = reopened(path)
        assert len(found) == 4 + number
        start = chain.size
        head = chain.append({"number": number})
        assert chain.line_at(start) == {"number": number, "chain": head}
        chain.close()
    assert without_seals(read_chain(path))[4:] == [{"number": 0}, {"number": 1}, {"number": 2}]


def test_each_line_is_found_where_reopening_said_it_begins(path):
    chain = Chain(path)
    places = list(chain.reopen())
    assert [chain.line_at(start) for start, _ in places] == [line for _, line in places]


def test_a_line_is_in_the_file_before_append_returns(tmp_path):
    chain = Chain(tmp_path / "deep" / "down" / "ledger.jsonl", durable=True)
    for number in range(3):
        chain.append({"number": number})
        assert len(read_chain(chain.path)) == number + 1
    chain.close()
    chain.append({"number": 3})  # closing only gives the files back
    chain.close()
    assert len(read_chain(chain.path)) == 4


def test_only_the_owner_may_read_a_chain(path):
    assert path.stat().st_mode & 0o777 == 0o600
    assert head_path(path).stat().st_mode & 0o777 == 0o600


def test_a_chain_without_a_file_seals_as_one_with_a_file(path):
    chain = Chain()
    heads = [chain.append(line) for line in LINES]
    assert heads == [line["chain"] for line in read_chain(path)]
    assert (chain.n_lines, list(chain.reopen())) == (4, [])
    chain.close()


def test_a_chain_that_never_began_is_empty(tmp_path):
    chain, found = reopened(tmp_path / "ledger.jsonl")
    assert (found, chain.n_lines, chain.head) == ([], 0, START)


json_values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=9)
json_lines = st.dictionaries(st.text(max_size=5).filter("chain".__ne__), json_values, min_size=1, max_size=4)


@given(st.lists(json_lines, min_size=1, max_size=5))
def test_any_lines_come_back(tmp_path_factory, lines):
    path = written(tmp_path_factory.mktemp("chain") / "ledger.jsonl", lines)
    assert without_seals(read_chain(path)) == lines
    assert without_seals(reopened(path)[1]) == lines


def test_a_line_that_says_nothing_is_refused(path):
    chain, _ = reopened(path)
    with pytest.raises(ValueError, match="cannot be empty"):
        chain.append({})
    assert (chain.n_lines, len(read_chain(path))) == (4, 4)


# ---------------------------------------------------------------- tampering


def test_editing_any_single_byte_shows(path):
    whole = path.read_bytes()
    for place, byte in enumerate(whole):
        for other in {byte ^ 1, byte ^ 0x20, byte ^ 0x80, ord("\n"), 0} - {byte}:
            path.write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])
            assert_broken(path)
    path.write_bytes(whole)
    assert without_seals(read_chain(path)) == LINES


def test_dropping_or_inserting_any_single_byte_shows(path):
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + whole[place + 1 :])
        assert_broken(path)
        path.write_bytes(whole[:place] + b" " + whole[place:])
        assert_broken(path)


@pytest.mark.parametrize("number", range(4))
def test_dropping_any_line_shows(path, number):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))
    assert_broken(path)


@pytest.mark.parametrize("number", range(4))
def test_repeating_any_line_shows(path, number):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[: number + 1], *lines[number:]]))
    assert_broken(path)


@pytest.mark.parametrize(("one", "other"), [(a, b) for a in range(4) for b in range(a + 1, 4)])
def test_swapping_any_two_lines_shows(path, one, other):
    lines = path.read_bytes().splitlines(keepends=True)
    lines[one], lines[other] = lines[other], lines[one]
    path.write_bytes(b"".join(lines))
    assert_broken(path)


def test_cutting_the_end_anywhere_shows(path):
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert_broken(path)


def test_a_line_sealed_anew_in_the_middle_shows(path):
    lines = path.read_bytes().splitlines(keepends=True)
    first = read_chain(path)[0]["chain"]
    raw = msgspec.json.encode({**LINES[1], "round": 9})
    lines[1] = raw[:-1] + b',"chain":"' + seal(first, raw).encode() + b'"}\n'
    path.write_bytes(b"".join(lines))
    assert_broken(path)


def test_a_chain_written_anew_from_the_middle_shows(path):
    """Whoever seals all later lines anew still has another last hash than the head file."""
    other = written(path.with_name("other.jsonl"), [LINES[0], {**LINES[1], "round": 9}, *LINES[2:]])
    path.write_bytes(other.read_bytes())
    assert_broken(path)


def test_a_line_added_behind_the_head_shows_to_readers(path):
    head = head_path(path).read_bytes()
    chain, _ = reopened(path)
    chain.append({"event": "answer"})
    chain.close()
    head_path(path).write_bytes(head)
    with pytest.raises(LedgerBroken, match="holds 5 lines; according to its head file, 4"):
        read_chain(path)


def test_a_chain_that_is_being_written_is_read_as_far_as_it_goes(path):
    """Lines the head does not know yet and half a line are no sign of harm there; a missing or another line is."""
    head = head_path(path).read_bytes()
    chain, _ = reopened(path)
    for _ in range(2):
        chain.append({"event": "answer"})
    chain.close()
    head_path(path).write_bytes(head)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"event":"answ')
    assert len(read_open_chain(path)) == len(LINES) + 2
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[: len(LINES) - 1]))
    with pytest.raises(LedgerBroken, match="does not hold the 4 lines"):
        read_open_chain(path)
    written(path.with_name("other.jsonl"), [LINES[0], {**LINES[1], "round": 9}, *LINES[2:]])
    path.write_bytes(path.with_name("other.jsonl").read_bytes())
    with pytest.raises(LedgerBroken, match="does not hold the"):
        read_open_chain(path)


def test_removing_the_head_shows_to_readers(path):
    head_path(path).unlink()
    with pytest.raises(LedgerBroken, match="is missing, so lines may be missing at the end"):
        read_chain(path)


@pytest.mark.parametrize("kept", [4, 2])
def test_removing_the_head_shows_when_the_chain_is_reopened(path, kept):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:kept]))
    head_path(path).unlink()
    with pytest.raises(LedgerBroken):
        reopened(path)


@pytest.mark.parametrize("head", [b"nonsense", b"4", b"4 5 6", b"four " + b"0" * 64, b"\xff\xfe"])
def test_a_head_that_cannot_be_read_shows(path, head):
    head_path(path).write_bytes(head)
    assert_broken(path)


@pytest.mark.parametrize("number", [0, 1, 3, 5, 9])
def test_a_head_with_another_number_shows(path, number):
    head = read_chain(path)[-1]["chain"]
    head_path(path).write_text(f"{number:020d} {head}\n")
    with pytest.raises(LedgerBroken):
        read_chain(path)
    if number:  # a head that says nothing was written yet is what a crash at the first line leaves
        with pytest.raises(LedgerBroken):
            reopened(path)


def test_a_head_with_another_hash_shows(path):
    head_path(path).write_text(f"{4:020d} {'f' * 64}\n")
    assert_broken(path)


def test_what_is_wrong_is_said_with_the_number_of_the_line(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"round":1', b'"round":2'), lines[3]]))
    with pytest.raises(LedgerBroken, match="line 3 was changed, or a line before it is missing"):
        read_chain(path)
    path.write_bytes(b"".join(lines[:3]))
    with pytest.raises(LedgerBroken, match="1 lines are missing at the end"):
        reopened(path)
    path.write_bytes(b"".join(lines)[:-1])
    with pytest.raises(LedgerBroken, match="line 4 is truncated"):
        read_chain(path)


# ---------------------------------------------------------------- crashes


def test_a_line_torn_by_a_crash_is_cut_off_and_the_chain_goes_on(path):
    before, head = path.read_bytes(), head_path(path).read_bytes()
    chain, _ = reopened(path)
    chain.append({"event": "answer", "round": 3})
    chain.close()
    torn = path.read_bytes()[len(before) :]
    for size in range(len(torn)):
        path.write_bytes(before + torn[:size])
        head_path(path).write_bytes(head)
        chain, found = reopened(path)
        assert without_seals(found) == LINES
        assert path.read_bytes() == before
        chain.append({"event": "after"})
        chain.close()
        assert without_seals(read_chain(path)) == [*LINES, {"event": "after"}]


def test_a_line_whose_head_was_not_written_any_more_counts(path):
    head = head_path(path).read_bytes()
    chain, _ = reopened(path)
    chain.append({"event": "last"})
    chain.close()
    head_path(path).write_bytes(head)
    chain, found = reopened(path)
    assert without_seals(found) == [*LINES, {"event": "last"}]
    chain.append({"event": "after"})
    chain.close()
    assert without_seals(read_chain(path)) == [*LINES, {"event": "last"}, {"event": "after"}]


@pytest.mark.parametrize("kept", ["nothing", "half a line", "the line"])
def test_a_crash_at_the_first_line_is_no_tampering(tmp_path, kept):
    path = written(tmp_path / "ledger.jsonl", LINES[:1])
    whole = path.read_bytes()
    path.write_bytes({"nothing": b"", "half a line": whole[:30], "the line": whole}[kept])
    head_path(path).write_bytes(b"")  # opened, and not yet written
    chain, found = reopened(path)
    assert without_seals(found) == (LINES[:1] if kept == "the line" else [])
    chain.append({"event": "after"})
    chain.close()


# ---------------------------------------------------------------- errors while writing


class Broken:
    """Stands for an ``os`` function: does ``part`` of its work, then the disk is full; later calls work."""

    def __init__(self, real, *, part: float = 0.0) -> None:
        self.real, self.part, self.calls = real, part, 0

    def __call__(self, file, *given):
        self.calls += 1
        fails_at = 2 if self.part else 1
        if self.calls == fails_at:
            raise OSError(errno.ENOSPC, "no space left on device")
        if self.calls < fails_at:
            return self.real(file, given[0][: int(len(given[0]) * self.part)])
        return self.real(file, *given)


@pytest.mark.parametrize(("name", "part"), [("write", 0.0), ("write", 0.4), ("pwrite", 0.0), ("fsync", 0.0)], ids=str)
def test_a_line_that_cannot_be_written_leaves_no_trace(path, monkeypatch, name, part):
    chain, _ = reopened(path)
    chain.durable = True
    before = path.read_bytes(), head_path(path).read_bytes(), chain.head, chain.n_lines, chain.size
    with monkeypatch.context() as patched:
        patched.setattr(os, name, Broken(getattr(os, name), part=part))
        with pytest.raises(OSError, match="no space left"):
            chain.append({"event": "lost"})
    assert (path.read_bytes(), head_path(path).read_bytes(), chain.head, chain.n_lines, chain.size) == before
    start = chain.size
    chain.append({"event": "kept"})
    assert chain.line_at(start)["event"] == "kept"
    chain.close()
    assert without_seals(read_chain(path)) == [*LINES, {"event": "kept"}]
    assert without_seals(reopened(path)[1]) == [*LINES, {"event": "kept"}]


def test_a_line_written_in_pieces_is_whole(path, monkeypatch):
    chain, _ = reopened(path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))
    chain.append({"event": "piecemeal", "text": "x" * 100})
    chain.close()
    assert without_seals(read_chain(path)) == [*LINES, {"event": "piecemeal", "text": "x" * 100}]


def test_a_full_disk_at_the_first_line_does_not_close_the_ledger_for_ever(tmp_path, monkeypatch):
    chain = Chain(tmp_path / "ledger.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", Broken(os.write))
        with pytest.raises(OSError, match="no space left"):
            chain.append({"event": "lost"})
    chain.close()
    assert reopened(chain.path)[1] == []


def test_half_a_line_that_could_not_be_taken_back_does_not_spoil_the_next(path, monkeypatch):
    chain, _ = reopened(path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", Broken(os.write, part=0.4))
        patched.setattr(os, "ftruncate", Broken(os.ftruncate))
        with pytest.raises(OSError, match="no space left"):
            chain.append({"event": "lost"})
    chain.append({"event": "kept"})
    chain.close()
    assert without_seals(read_chain(path)) == [*LINES, {"event": "kept"}]
