"""What pages say and do not say, from their text."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from coterie.cli import main
from coterie.cli.jobs import Job
from coterie.cli.remote_jobs import remote_job
from coterie.errors import InputError
from coterie.examples.demo import demo, write_demo
from coterie.report.markup import number, percent
from coterie.report.page import write_page
from coterie.report.portrait import portrait_of
from coterie.report.sections.map import plane_of
from tests.federations import blobs
from tests.orders import ANALYST
from tests.report.runs import NAMES, QUICK, run, text_file, written

DATE = re.compile(r"<time datetime='[-0-9]*'>[-0-9]*</time>")


def dateless(page: Path) -> str:
    text, n = DATE.subn("", page.read_text())
    assert n == 1
    return text


@pytest.mark.parametrize("kind", list(QUICK))
def test_the_same_page_twice_is_the_same_to_the_last_byte(finished, tmp_path, kind):
    folder = finished(kind)
    before = dateless(folder / "report.html")
    assert dateless(write_page(folder)) == before
    assert str(folder.parent) not in before


def test_no_value_of_a_row_no_id_and_no_path_is_in_a_protected_page(tmp_path):
    rng = np.random.default_rng(3)
    values = np.round(blobs(120, 3, 3, seed=5) * 10 + 73.918273645, 9)
    wards = np.array(["NEPHROLOGY", "oncology", "SECRETWARD7"])[np.minimum(rng.integers(0, 60, 120), 2) % 3]
    wards[:60], wards[60:110] = "NEPHROLOGY", "oncology"
    wards[113] = "SECRETWARD7"
    folder = tmp_path / "patients of Dr Quillfeather"
    folder.mkdir()
    data = []
    for i, name in enumerate(NAMES):
        rows = range(i, 120, 3)
        lines = [f"PATIENT-{j:05d},{','.join(f'{v:.9f}' for v in values[j])},{wards[j]}" for j in rows]
        data.append(text_file(folder / f"{name}.csv", ["patient,pressure,weight,height,ward", *lines]))
    out = run(folder, data, clusters=3, scale="standard", ignore=["patient"])
    page = (out / "report.html").read_text()
    assert "NEPHROLOGY" in page or "ward=" in page  # what enough rows share has a name
    assert "SECRETWARD7" not in page
    assert "PATIENT-" not in page
    for path in ("Quillfeather", str(tmp_path), str(Path.home()) + "/", ".csv", "/work/", "journal"):
        assert path.replace(".csv", "north.csv") not in page
    for digits in (9, 7, 5):
        texts = {f"{v:.{digits}f}" for v in values.ravel()} | {f"{v:.{digits}g}" for v in values.ravel()}
        assert [text for text in texts if re.search(rf"(?<![\d.]){re.escape(text)}(?!\d)", page)] == []
    assert "It shows no row." in page


def test_rows_of_protected_sites_are_not_shown(tmp_path):
    data = written(tmp_path, blobs(90, 3, 2, seed=1), "abc")
    with pytest.raises(InputError, match="--show-rows shows rows of north, south, west, whose policy protects them"):
        run(tmp_path, data, clusters=2, show_rows=True)
    mixed = {"north": "simulation", "south": "standard", "west": "simulation"}
    with pytest.raises(InputError, match="rows of south, whose policy"):
        run(tmp_path, data, clusters=2, policy=mixed, show_rows=True)
    with pytest.raises(InputError, match="no site holds whole rows"):
        Job(data=data, method="vertical-kernel-pca", show_rows=True).run(resume=False, watch=lambda _: None)
    assert not (tmp_path / "out").exists()


def test_a_federation_shows_no_rows():
    with pytest.raises(InputError, match="a federation's rows are at its sites"):
        remote_job(Job(columns=["a"], show_rows=True), ANALYST)


def test_the_demonstration_shows_birds_to_who_asks(tmp_path):
    page = write_demo(demo(), tmp_path, show_rows=True).read_text()
    dots = sum(group.count("<circle") for group in re.findall("<g class='dots.*?</g>", page))
    assert dots == 342  # those with all measurements
    assert "Small dots are 342 of 344 rows" in page
    assert "<g class='dots" not in write_page(tmp_path).read_text()


def test_landmarks_are_shown_where_they_are_averages_and_not_where_they_may_be_rows(finished, tmp_path):
    protected = json.loads((finished("kernel") / "result.json").read_text())["landmarks"]
    assert len(protected["points"]) == len(protected["clusters"]) > 10
    assert "class='dots c0'" in (finished("kernel") / "report.html").read_text()
    data = written(tmp_path, blobs(60, 2, 2, seed=1), "ab")
    out = run(tmp_path, data, clusters=2, method="landmarks", policy="simulation")
    assert json.loads((out / "result.json").read_text())["landmarks"] is None
    assert "class='dots" not in (out / "report.html").read_text()


def test_the_map_is_of_the_released_means(finished):
    """Its first axis is the principal axis of the means, weighted."""
    result = json.loads((finished("heart") / "result.json").read_text())
    portrait = portrait_of(result)
    plane = plane_of(portrait)
    assert np.allclose(plane.axes.T @ plane.axes, np.eye(2), atol=1e-12)
    weights = portrait.sizes / portrait.sizes.sum()
    away = portrait.standard_means - weights @ portrait.standard_means
    covariance = (away * weights[:, None]).T @ away
    along = np.diag(plane.axes.T @ covariance @ plane.axes)
    assert along[0] == pytest.approx(np.linalg.eigvalsh(covariance)[-1])
    assert plane.shares[:2] == pytest.approx(along / np.trace(covariance))
    spread = plane.spread(0)
    whole = np.diag(np.nan_to_num(portrait.values["sd"][0] / portrait.whole_sd) ** 2)
    assert spread == pytest.approx(plane.axes.T @ whole @ plane.axes)


@pytest.mark.parametrize(("k", "d"), [(1, 3), (2, 1), (2, 4)])
def test_a_map_of_few_clusters_or_columns_is_drawn(tmp_path, k, d):
    names = [f"x{j}" for j in range(d)]
    out = run(tmp_path, written(tmp_path, blobs(60, d, 2, seed=1), names), clusters=k)
    page = (out / "report.html").read_text()
    assert page.count("class='name'") == k
    assert "nan" not in page.replace("nancial", "")


def test_without_profiles_centers_are_shown_and_components_are_not(tmp_path):
    data = written(tmp_path, blobs(60, 2, 2, seed=1), "ab")
    page = (run(tmp_path, data, clusters=2, profile=False) / "report.html").read_text()
    assert "a cell is the coordinate of a center" in page
    assert "class='spread" not in page  # no deviations are known
    kernel = tmp_path / "kernel"
    kernel.mkdir()
    page = (run(kernel, data, clusters=2, profile=False, method="landmarks") / "report.html").read_text()
    assert "centers are components of a kernel" in page
    assert "component0" not in page


def test_disclosure_says_who_saw_what(finished):
    def told(kind: str) -> str:
        text = (finished(kind) / "report.html").read_text()
        found = re.search("<section id='disclosed'.*?</section>", text, re.DOTALL)
        return re.sub("<[^>]*>", " ", found[0])

    demo, heart, vertical, private = map(told, ("demo", "heart", "vertical", "private"))
    assert "The server saw no site&#x27;s results by themselves." in demo
    assert "Verified: every site ran the ordered method itself" in demo
    assert "fixed groups of at least 5 rows" in demo
    assert "by itself: rows of each cluster" in heart  # the policy research lets it see the composition
    assert "can tell the cluster of each of them" in vertical
    assert "stays there" not in vertical
    assert "rows as they are" in vertical
    assert "added noise to all that left" in private
    assert "epsilon = 4" in private


def test_estimates_are_named_as_such(finished):
    def names(kind: str) -> list[str]:
        page = (finished(kind) / "report.html").read_text()
        return re.search("data-names='([^']*)'", page)[1].split("|")

    assert [name for name in names("vertical") if "(estimate)" in name] == [
        "first quartile (estimate)", "median (estimate)", "third quartile (estimate)",
    ]  # fmt: skip
    assert "standard deviation (estimate)" in names("demo")
    assert "mean or share" in names("demo")
    assert [name for name in names("private") if "(estimate)" not in name] == ["deviation of the noise in the mean"]


def test_cost_beside_sending_the_table(finished):
    page = (finished("demo") / "report.html").read_text()
    result = json.loads((finished("demo") / "result.json").read_text())
    raw = result["rows"]["held"] * 4 * 8
    assert f"takes {raw:,} bytes: the run sent {result['bytes_up'] / raw:.3g} times as much" in page
    private = (finished("private") / "report.html").read_text()
    assert re.search(r"takes about [\d,]+ bytes: the run sent about ", private)


def test_several_runs_are_shown_side_by_side(tmp_path, monkeypatch, capsys):
    data = written(tmp_path, blobs(90, 3, 3, seed=1), "abc")
    for k in (2, 3):
        Job(data=data, out=str(tmp_path / f"k{k}"), clusters=k).run(resume=False, watch=lambda _: None)
    alone = dateless(tmp_path / "k3" / "report.html")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["coterie", "report", "k3", "k2"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    page = (tmp_path / "k3" / "report.html").read_text()
    assert "Beside other runs" in page
    assert re.search(r"k3 and k2: adjusted Rand index 0\.\d+ over 90 rows", page)
    monkeypatch.setattr(sys, "argv", ["coterie", "report", "k3"])
    with pytest.raises(SystemExit):
        main()
    assert "is written" in capsys.readouterr().out
    assert dateless(tmp_path / "k3" / "report.html") == alone
    monkeypatch.setattr(sys, "argv", ["coterie", "report", "nowhere"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "holds no finished run" in capsys.readouterr().err


def test_numbers_have_four_digits():
    assert [number(v) for v in (0.0, 1.0, 123456.7, -0.00012345, 1e-9, 2e9)] == [
        "0", "1", "123,457", "-0.0001234", "1e-09", "2e+09",
    ]  # fmt: skip
    assert [percent(v) for v in (0.0, 0.0049, 0.005, 0.426, 1.0)] == ["0 %", "0.5 %", "0 %", "43 %", "100 %"]
