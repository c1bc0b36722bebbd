"""The frame: every trial once, whatever interrupts it."""

from __future__ import annotations

import json
from functools import partial

import pytest

from coterie.errors import InputError
from coterie_studies.datasets import DataMissing
from coterie_studies.study import Study, Trial, run_study


def square(x: int) -> dict[str, float]:
    """A measurement that takes no time."""
    return {"square": float(x * x), "odd": float("nan") if x % 2 else 0.0}


def missing() -> dict[str, float]:
    """A measurement without its data."""
    raise DataMissing("moon.npz: there is no such file")


def trials(scope):
    made = [Trial(f"x={x}", partial(square, x), {"kind": "square"}) for x in range(3 * scope.seeds)]
    return [*made, Trial("moon", missing)]


def write(found):
    return found.table("squares", [{"square": found.estimate("square", kind="square"), "n": len(found.select())}])


STUDY = Study("squares", "Squares", trials, write)


class Stop:
    """Ctrl-C after some trials."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.seen: list[str] = []

    def __call__(self, done: int, total: int, key: str) -> None:
        self.seen.append(key)
        if len(self.seen) == self.after:
            raise KeyboardInterrupt


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.suffix in (".csv", ".md")}


def test_resuming_after_an_interruption_gives_the_same_tables_and_repeats_nothing(tmp_path):
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    run_study(STUDY, whole, seeds=2)
    with pytest.raises(KeyboardInterrupt):
        run_study(STUDY, halves, seeds=2, watch=Stop(4))
    assert not (halves / "README.md").exists()
    with (halves / "trials.jsonl").open("a") as file:
        file.write('{"key": "x=4", "val')  # cut off in the middle of a line
    rest = Stop(99)
    run_study(STUDY, halves, resume=True, watch=rest)
    assert rest.seen == ["x=4", "x=5", "moon"]
    assert files(halves) == files(whole)
    assert len(files(whole)) == 3


def test_workers_find_the_same(tmp_path):
    run_study(STUDY, tmp_path / "one", seeds=2)
    run_study(STUDY, tmp_path / "two", seeds=2, workers=2)
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_missing_data_is_named_as_skipped_and_tried_again(tmp_path):
    found = run_study(STUDY, tmp_path, quick=True)
    assert found.skipped() == {"moon": "moon.npz: there is no such file"}
    assert "- `moon`: moon.npz: there is no such file" in (tmp_path / "README.md").read_text()
    again = Stop(99)
    run_study(STUDY, tmp_path, resume=True, watch=again)
    assert again.seen == ["moon"]


def test_a_folder_that_holds_something_is_not_overwritten(tmp_path):
    run_study(STUDY, tmp_path / "a", quick=True)
    with pytest.raises(InputError, match="already holds a study; resume it"):
        run_study(STUDY, tmp_path / "a", quick=True)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="holds other files"):
        run_study(STUDY, tmp_path, quick=True)


def test_only_the_same_study_in_the_same_scope_is_resumed(tmp_path):
    run_study(STUDY, tmp_path, quick=True)
    with pytest.raises(InputError, match="holds the study 'squares', not 'cubes'"):
        run_study(Study("cubes", "Cubes", trials, write), tmp_path, resume=True)
    with pytest.raises(InputError, match="begun as a quick study with seeds=2"):
        run_study(STUDY, tmp_path, quick=False, resume=True)
    with pytest.raises(InputError, match="as quick with seeds=3"):
        run_study(STUDY, tmp_path, seeds=3, resume=True)


def test_an_unknown_schema_and_damage_are_told(tmp_path):
    run_study(STUDY, tmp_path, quick=True)
    header = json.loads((tmp_path / "study.json").read_text())
    assert (header["schema"], header["study"], header["scope"], header["seeds"]) == (1, "squares", "quick", 2)
    (tmp_path / "trials.jsonl").write_text("nonsense\n")
    with pytest.raises(InputError, match="'nonsense' is no finished trial"):
        run_study(STUDY, tmp_path, resume=True)
    (tmp_path / "study.json").write_text(json.dumps({**header, "schema": 99}))
    with pytest.raises(InputError, match="has schema 99, this version of coterie reads 1"):
        run_study(STUDY, tmp_path, resume=True)
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(InputError, match="is damaged"):
        run_study(STUDY, tmp_path, resume=True)


def test_no_seeds_are_refused(tmp_path):
    with pytest.raises(InputError, match="seeds=0 must be at least 1"):
        run_study(STUDY, tmp_path, seeds=0)
