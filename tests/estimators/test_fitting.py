"""Fitting over tables that stay where they are, and models that outlive a run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import coterie
from coterie import FederatedKernelKMeans, FederatedKMeans, load_model, open_table, save_model
from coterie.engines.inprocess import Fault, Schedule
from coterie.errors import ColumnsDiffer, InputError, JournalMismatch, QuorumLost
from coterie.estimators.registry import ESTIMATORS, make_estimator
from coterie.messages.refusals import Refusal
from coterie.methods.edge.method import NAMED
from coterie.methods.registry import METHODS
from coterie.runtime.outcomes import OutcomeKind
from coterie.runtime.terms import Terms
from coterie.sites.policy import Policy
from tests.federations import blobs, central_lloyd, split_evenly

PLAIN = {"sums": "plain", "policy": Policy.simulation()}
ROWS = blobs(200, 3, 3, seed=6) * [1, 10, 100] + 5


def frames(rows=ROWS, parts=4):
    return {
        f"site-{i}": pd.DataFrame(part, columns=["a", "b", "c"]) for i, part in enumerate(np.array_split(rows, parts))
    }


def test_tables_frames_arrays_and_files_give_the_same_result(tmp_path):
    for name, frame in frames().items():
        frame.to_parquet(tmp_path / f"{name}.parquet")
    sources = [
        frames(),
        {name: frame.to_numpy() for name, frame in frames().items()},
        {name: str(tmp_path / f"{name}.parquet") for name in frames()},
        {name: open_table(frame) for name, frame in frames().items()},
    ]
    fitted = [coterie.fit(FederatedKMeans(3, random_state=0), tables, scale="standard") for tables in sources]
    for model in fitted[1:]:
        np.testing.assert_array_equal(model.cluster_centers_, fitted[0].cluster_centers_)
        assert model.ledger_.total("floats_up") == fitted[0].ledger_.total("floats_up")


def test_preparation_is_part_of_the_model_and_raw_rows_go_in():
    holes = np.where(np.random.default_rng(0).random(ROWS.shape) < 0.05, np.nan, ROWS)
    model = coterie.fit(
        FederatedKMeans(3, init="var-part", tol=0, random_state=0),
        frames(holes),
        scale="standard",
        missing="mean",
        **PLAIN,
    )
    pipeline = make_pipeline(SimpleImputer(), StandardScaler()).fit(holes)
    prepared = pipeline.transform(holes)
    np.testing.assert_allclose(model.prepared_rows(holes), prepared, rtol=1e-9, atol=1e-12)
    squared = ((prepared[:, None] - model._prepared_centers) ** 2).sum(-1)
    frame = pd.DataFrame(holes, columns=["a", "b", "c"])
    np.testing.assert_array_equal(model.predict(frame), squared.argmin(1))
    assert model.inertia_ == pytest.approx(squared.min(1).sum(), rel=1e-9)
    centers, cost, _ = central_lloyd(prepared, model._prepared_centers, 1, 0.0)
    np.testing.assert_allclose(centers, model._prepared_centers, atol=1e-6)  # a fixed point of Lloyd's step
    assert cost == pytest.approx(model.inertia_)
    np.testing.assert_allclose(model.cluster_centers_, model.preparation_.undo(model._prepared_centers))


def test_sites_with_other_columns_are_named():
    tables = frames()
    tables["site-2"] = tables["site-2"].rename(columns={"b": "beta"})
    with pytest.raises(ColumnsDiffer, match=r"site-2: column 'b' is missing, column 'beta' is held here"):
        coterie.fit(FederatedKMeans(3), tables)


def test_a_site_whose_policy_forbids_it_stops_the_run():
    policy = {"site-1": Policy(methods=frozenset({"lloyd"}), per_site_results="averages")}
    with pytest.raises(QuorumLost, match="site-1 failed: the site's policy does not allow this method"):
        coterie.fit(FederatedKMeans(3), frames(), policy=policy)


def test_where_a_site_does_not_let_averages_be_seen_plain_sums_are_refused_too():
    with pytest.raises(QuorumLost) as refused:
        coterie.fit(FederatedKMeans(3), frames(), policy=Policy(), sums="plain")
    assert {o.refusal for o in refused.value.outcomes.values()} == {Refusal.SINGLE_ANSWER_FORBIDDEN}


def test_too_few_sites_for_a_masked_sum_are_told_before_anything_is_sent():
    with pytest.raises(InputError, match=r"there are 2 sites, but their policy allows no sum over fewer than 3"):
        coterie.fit(FederatedKMeans(3), frames(parts=2))
    with pytest.raises(InputError, match="sums='clear' is neither 'masked' nor 'plain'"):
        coterie.fit(FederatedKMeans(3), frames(), sums="clear")


@pytest.mark.parametrize("scale", ["none", "standard", "minmax"])
@pytest.mark.parametrize("missing", ["refuse", "mean", "drop"])
def test_masked_without_guards_is_plain_within_the_fixed_point_error(scale, missing):
    rows = ROWS if missing == "refuse" else np.where(np.random.default_rng(1).random(ROWS.shape) < 0.03, np.nan, ROWS)
    options = {"scale": scale, "missing": missing, "ranges": (ROWS.min(0), ROWS.max(0))}
    plain, masked = (
        coterie.fit(
            FederatedKMeans(3, init="cells", random_state=0),
            frames(rows),
            policy=Policy.simulation(),
            sums=sums,
            **options,
        )
        for sums in ("plain", "masked")
    )
    one, other = (np.array(sorted(model.cluster_centers_.tolist())) for model in (masked, plain))
    np.testing.assert_allclose(one, other, rtol=1e-8)
    assert masked.inertia_ == pytest.approx(plain.inertia_, rel=1e-8)
    seen = {e.seen for e in masked.ledger_.exchanges if e.content == "sums"}
    assert seen == {"masked"}


def test_by_default_the_server_sees_only_masked_sums_and_the_schema():
    model = coterie.fit(FederatedKMeans(3, random_state=0), frames(), scale="standard")
    shown = {(e.content, e.seen) for e in model.ledger_.exchanges if e.phase == "algorithm"}
    assert shown <= {("sums", "masked"), ("schema", "single"), ("nothing", "summed"), ("averages", "single")}
    refused = [e for e in model.ledger_.exchanges if e.content == "averages"]
    assert all(count.outcome.kind is not OutcomeKind.ANSWERED for e in refused for count in e.sites.values())


def test_a_journal_resumes_with_the_seed_it_had(tmp_path):
    down = Schedule([Fault("site-3", "drop", frozenset({5}))])
    model = FederatedKMeans(3, init="random", random_state=None)
    with pytest.raises(QuorumLost):
        coterie.fit(model, frames(), journal=tmp_path / "j", schedule=down)
    resumed = coterie.fit(FederatedKMeans(3, init="random"), frames(), journal=tmp_path / "j", resume=True)
    seeded = FederatedKMeans(3, init="random", random_state=resumed.public_seed_)
    whole = coterie.fit(seeded, frames(), policy=Policy(verification="off"))
    np.testing.assert_allclose(whole.cluster_centers_, resumed.cluster_centers_, rtol=1e-12)


def test_other_settings_do_not_resume(tmp_path):
    coterie.fit(FederatedKMeans(3, random_state=1), frames(), journal=tmp_path)
    with pytest.raises(JournalMismatch, match="settings"):
        coterie.fit(FederatedKMeans(4, random_state=1), frames(), journal=tmp_path, resume=True)


def test_dropouts_within_the_quorum_are_survived():
    down = Schedule([Fault("site-3", "drop")])
    survived = coterie.fit(
        FederatedKMeans(3, init="var-part", random_state=0),
        frames(),
        schedule=down,
        terms=Terms(quorum=0.75),
        **PLAIN,
    )
    without = {name: frame for name, frame in frames().items() if name != "site-3"}
    np.testing.assert_allclose(
        survived.cluster_centers_,
        coterie.fit(FederatedKMeans(3, init="var-part", random_state=0), without, **PLAIN).cluster_centers_,
    )


def test_no_table_and_an_unknown_engine_are_input_errors():
    with pytest.raises(InputError, match="tables is empty"):
        coterie.fit(FederatedKMeans(3), {})
    with pytest.raises(InputError, match="engine='carrier-pigeon'"):
        coterie.fit(FederatedKMeans(3), frames(), engine="carrier-pigeon")


@pytest.mark.parametrize("method", sorted(ESTIMATORS))
def test_every_method_of_the_list_can_be_made_and_names_itself(method):
    made = make_estimator(method, {"n_clusters": 3, "random_state": 0})
    assert made.method == method
    disclosing = ["dspgd-dense", "rfk", "ck", "sk", "ce-pca", "vertical-kernel-pca", *NAMED]
    rows = dict.fromkeys(disclosing, Policy(per_site_results="rows", protection="none"))
    policy = {"one-shot": Policy(per_site_results="averages"), "dspgd": Policy(), **rows}.get(method)
    fitted = coterie.fit(made, split_evenly(ROWS[:99], 3), policy=policy)
    assert fitted.ledger_.method == method


def test_methods_that_find_components_alone_say_which_estimator_does():
    assert METHODS.keys() - ESTIMATORS.keys() == {"federated-pca", "dpca", "describe", "choose-k", "compare"}
    for name in ("describe", "choose-k", "compare"):
        with pytest.raises(InputError, match=f"{name} finds no clusters; `coterie {name} "):
            make_estimator(name, {})
    with pytest.raises(InputError, match=r"finds components, not clusters; in Python it is coterie\.FederatedPCA\.$"):
        make_estimator("federated-pca", {})


def test_unknown_methods_and_parameters_name_the_nearest():
    with pytest.raises(InputError, match="did you mean 'lloyd'"):
        make_estimator("loyd", {})
    with pytest.raises(InputError, match="did you mean 'max_rounds'"):
        make_estimator("lloyd", {"max_round": 3})
    with pytest.raises(TypeError, match="FederatedKMeans has no parameter 'n_cluster'; did you mean 'n_clusters'"):
        FederatedKMeans(n_cluster=3)
    with pytest.raises(InputError, match="FederatedKernelKMeans has no parameter 'solver'; there are "):
        FederatedKernelKMeans(solver="gram")


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_a_saved_model_labels_identically(tmp_path, scale):
    model = coterie.fit(FederatedKMeans(3, random_state=0), frames(), scale=scale)
    again = load_model(save_model(model, tmp_path / "model.json"))
    frame = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)
    np.testing.assert_array_equal(again.transform(frame), model.transform(frame))
    assert list(again.feature_names_in_) == ["a", "b", "c"]


def test_an_estimator_that_was_never_fitted_is_not_saved(tmp_path):
    with pytest.raises(InputError, match="not a fitted model"):
        save_model(FederatedKMeans(3), tmp_path / "model.json")
    assert not list(tmp_path.iterdir())


def test_names_of_sites_may_come_from_an_array():
    names = np.array(["a", "b", "c"])
    made = coterie.fit(FederatedKMeans(3, random_state=0), dict(zip(names, np.array_split(ROWS, 3), strict=True)))
    assert list(made.ledger_.sites()) == ["a", "b", "c"]
