"""Stages of small summaries: which orders make sense, and how large each is."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sklearn.cluster import KMeans

from coterie.errors import InputError
from coterie.methods.edge.questions import EdgeSettings
from coterie.methods.edge.stages import JL, PCA, DisPCA, DisSS, Sample, accurate, read_pipeline, sized
from coterie.runtime.ledger import Ledger
from tests.federations import blobs, split_evenly, tables_of
from tests.methods.edge_runs import ROWS, cost, summarised

# ---------------------------------------------------------------- pipelines


def test_the_papers_names():
    for name in ("nr", "fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw", "centers"):
        assert read_pipeline(name).name == name
    assert read_pipeline("JL:32 + PCA:10 + sample:500").stages == (JL(32), PCA(10), Sample(500))
    assert read_pipeline([JL(4, "sparse"), DisPCA(3, 4), DisSS(50)]).name == "jl+bklw"


WORDS = ("jl", "pca", "sample", "dispca", "disss", "centers")


@pytest.mark.parametrize("words", [w for n in (1, 2, 3) for w in product(WORDS, repeat=n)], ids="+".join)
def test_every_order_of_stages_runs_or_is_refused_before_anyone_is_asked(words):
    text = "+".join(words)
    ways = [i for i, word in enumerate(words) if word in ("sample", "disss", "centers")]
    shared = [i for i, word in enumerate(words) if word in ("jl", "dispca")]
    own = [i for i, word in enumerate(words) if word == "pca"]
    once_more = words[-2:] == ("sample", "jl")
    in_order = all(i < min([*ways, *own], default=9) for i in shared if not (once_more and i == len(words) - 1))
    sensible = len(ways) <= 1 and len(own) <= 1 and in_order and all(i < min(ways, default=9) for i in own)
    if not sensible or (own and ways and words[ways[0]] != "sample"):
        with pytest.raises(InputError, match=r"cannot follow here|coordinates that no other site has"):
            read_pipeline(text)
        return
    pipeline = read_pipeline(text)
    assert [type(s).__name__.lower() for s in pipeline.stages] == list(words)
    made = summarised(text, k=3)
    assert np.isfinite(made.centers).all()
    assert made.cost == pytest.approx(cost(ROWS, made.centers), rel=1e-9)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("jl+fs", "there is no stage 'fs'"),
        ("fss:10", "one for each stage"),
        ("jl:x", "write sizes as"),
        ("sample+pca", "before the sample"),
        ("disss+jl", "only a sample can be projected once more"),
        ("sample+sample", "only once"),
        ("pca+disss", "use dispca"),
        ([JL(0)], "at least 1"),
        ([JL(3, "fast")], "gaussian, sparse, orthogonal"),
        (["jl"], "is not a stage"),
        ([Sample(2.5)], "whole number"),
        ([JL(7)], "at most 6 are possible"),
        ([PCA(7), Sample()], "at most 6"),
    ],
)
def test_what_makes_no_sense_is_said(given, told):
    with pytest.raises(InputError, match=told):
        summarised(given)


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize("pipeline", ["fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw", "jl+centers"])
@pytest.mark.parametrize("refine", [0, 2])
@pytest.mark.parametrize("n_sites", [1, 4])
def test_no_more_numbers_leave_than_the_budget_and_most_of_it_is_used(pipeline, refine, n_sites):
    rows = blobs(400, 30, 4, seed=1)
    for budget in (3_000, 12_000):
        ledger = Ledger()
        made = summarised(pipeline, split_evenly(rows, n_sites), budget=budget, refine=refine, ledger=ledger)
        assert ledger.total("floats_up") <= budget
        if "centers" not in pipeline:
            assert ledger.total("floats_up") > 0.6 * budget
        assert made.pipeline.name == pipeline


def test_too_small_a_budget_says_how_large_it_must_be():
    with pytest.raises(InputError, match=r"sends at least (\d+)") as problem:
        summarised("jl+fss", budget=20)
    least = int(str(problem.value).split("at least ")[1].rstrip("."))
    ledger = Ledger()
    summarised("jl+fss", budget=least, ledger=ledger)
    assert ledger.total("floats_up") <= least
    with pytest.raises(InputError, match="sends every row"):
        summarised("nr", budget=10_000)
    with pytest.raises(InputError, match="give one of them"):
        summarised("jl+fss", budget=10_000, accuracy=0.5)


def test_sizes_of_the_theorems():
    """By hand for FSS: (1 + e)/(1 - e) = 1.5 at e = 0.2; t = k + ceil(4k/e^2) - 1; k^3 log^2 k log(10)/e^4 points."""
    found = accurate(read_pipeline("fss"), 2, 10_000, 1e9, 1, 0.5)
    assert found.pca == PCA(2 + 200 - 1)
    assert found.points == Sample(int(np.ceil(8 * 1 * np.log(10) / 0.2**4)))
    jl = accurate(read_pipeline("jl+fss"), 2, 100_000, 1000.0, 1, 1.0)
    below = np.linspace(0, 0.5, 1_000_001)
    e = below[(1 + below) ** 5 / (1 - below) <= 2].max()
    assert jl.common[0].n_columns == pytest.approx(4 * np.log(1000 * 2 / 0.1) / (e**2 / 2 - e**3 / 3), rel=0.01)
    capped = accurate(read_pipeline("jl+bklw"), 3, 20, 500.0, 4, 0.1)
    assert capped.stages == (JL(20, "orthogonal"), DisPCA(20, 20), DisSS(500))
    assert accurate(read_pipeline("fss"), 3, 20, 500.0, 4, 1e-12).stages == (PCA(20), Sample(2000))
    for accuracy in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(InputError, match="above 0"):
            EdgeSettings(pipeline=read_pipeline("fss"), accuracy=accuracy).checked_pipeline()
    with pytest.raises(InputError, match="theorems cover"):
        EdgeSettings(pipeline=read_pipeline("sample"), accuracy=0.5).checked_pipeline()


@pytest.mark.parametrize("pipeline", ["fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw"])
def test_an_accuracy_that_takes_everything_is_exact(pipeline):
    """Also where one site holds nearly all rows, and columns are few: a square Gaussian matrix would distort rows."""
    rows = blobs(200, 2, 4, seed=3)
    best = KMeans(4, n_init=20, random_state=0).fit(rows).inertia_
    owners = np.minimum(np.arange(200), 9)
    for seed in range(5):
        made = summarised(pipeline, tables_of(rows, owners, 10), seed=seed, accuracy=1e-3)
        assert made.cost <= 1.001 * best


@pytest.mark.parametrize("pipeline", ["fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw"])
def test_a_theorem_holds_with_its_sizes(pipeline):
    """Loose, as theorems are; that sizes matter is for the tests above."""
    made = summarised(pipeline, accuracy=1.0, lift="means")
    assert made.cost <= 2 * KMeans(4, n_init=10, random_state=0).fit(ROWS).inertia_


def test_default_sizes_grow_with_the_clusters_and_stop_at_the_columns():
    small, large = (sized(read_pipeline("jl+fss"), k, 1000) for k in (2, 20))
    assert small.stages == (JL(56), PCA(28), Sample(200))
    assert large.stages == (JL(126), PCA(63), Sample(1000))
    assert sized(read_pipeline("jl+bklw"), 2, 5).stages == (JL(5, "orthogonal"), DisPCA(5, 5), DisSS(200))


@pytest.mark.parametrize(
    ("pipeline", "left_out"),
    [  # 1 + accuracy = 2: the polynomials of section IV-C
        ("fss", lambda e: (1 + e) - 2 * (1 - e)),
        ("jl+fss", lambda e: (1 + e) ** 5 - 2 * (1 - e)),
        ("fss+jl", lambda e: (1 + e) ** 5 - 2 * (1 - e)),
        ("jl+fss+jl", lambda e: (1 + e) ** 9 - 2 * (1 - e)),
        ("bklw", lambda e: (1 + e) ** 2 - 2 * (1 - e) ** 2),
        ("jl+bklw", lambda e: (1 + e) ** 6 - 2 * (1 - e) ** 2),
    ],
)
def test_stages_get_the_accuracy_of_section_iv_c(pipeline, left_out):
    fine = np.linspace(1e-4, 0.4, 4_000_001)
    e = fine[np.abs(left_out(fine)).argmin()]
    found = accurate(read_pipeline(pipeline), 5, 1 << 30, 1e6, 3, 1.0)
    axes = found.pca or next(stage for stage in found.common if isinstance(stage, DisPCA))
    assert axes.n_components == pytest.approx(5 + 4 * 5 / e**2 - 1, abs=1.01)
