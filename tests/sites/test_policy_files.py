"""Policy files: every rule is there, checked, and explained in words that hold."""

from __future__ import annotations

import base64
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coterie
from coterie import Privacy
from coterie.errors import InputError, RunError
from coterie.estimators.registry import make_estimator
from coterie.methods.registry import METHODS
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.policy_files import (
    PRESETS,
    explain_policy,
    find_policy,
    policy_text,
    preset,
    read_policy,
    upgraded_policy,
)
from tests.federations import blobs

KEY = bytes(range(32))
RULES = [field.name for field in fields(Policy)]
WRITTEN = {"method_protection": "method"}
"""Rules that a file calls otherwise."""


def explained(policy: Policy) -> str:
    return " ".join(explain_policy(policy))


@pytest.fixture
def written(tmp_path):
    """Write a policy file and read it."""

    def read(text):
        path = tmp_path / "site.toml"
        path.write_text(text)
        return read_policy(path)

    return read


# ---------------------------------------------------------------- presets


def test_presets_are_the_policies_their_names_promise():
    assert preset("standard") == Policy(max_questions=2000, max_runs=100, min_rows=20)
    assert preset("strict") == Policy(
        min_group=10,
        levels="listed",
        min_roster=5,
        rosters="fixed",
        max_questions=500,
        max_runs=100,
        min_rows=100,
        orders_may_choose=frozenset(),
        approval="first",
    )
    assert preset("private") == Policy(
        protection="noise",
        levels="listed",
        privacy=PrivacyRules(4.0, 1e-6, "row"),
        max_questions=500,
        max_runs=100,
        orders_may_choose=frozenset(),
        approval="first",
    )
    research = {
        "per_site_results": "averages",
        "min_group": 3,
        "min_roster": 2,
        "rosters": "any",
        "composition": True,
    }
    assert preset("research") == Policy(**research)


def test_presets_go_from_careful_to_open():
    _, strict, standard, research = map(preset, PRESETS)
    for rule in ("min_group", "min_roster", "min_rows"):
        assert getattr(strict, rule) >= getattr(standard, rule) >= getattr(research, rule)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in WRITTEN])
def test_every_rule_is_in_every_preset_below_a_comment(name, rule):
    lines = policy_text(name).splitlines()
    wanted = re.compile(rf"(# )?(\[{rule}\]|{rule} = .+)")
    places = [i for i, line in enumerate(lines) if wanted.fullmatch(line)]
    assert len(places) == 1
    assert lines[places[0] - 1].startswith("# ")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_written_out_reads_as_the_same_policy(name, written):
    assert written(policy_text(name)) == preset(name) == find_policy(name)


@pytest.mark.parametrize("name", PRESETS)
def test_what_a_preset_comments_out_is_valid_once_it_counts(name, written):
    text = re.sub(
        r"^# (methods|max_questions|max_runs|\[p\w+\]|epsilon|delta|unit|north|south)",
        r"\1",
        policy_text(name),
        flags=re.M,
    )
    text = text.replace("44 characters of base64, or 64 hex digits", KEY.hex())
    found = written(text)
    assert found.methods == {"federated-kmeans", "lloyd"}
    assert found.max_questions is not None
    assert found.peers == {"north": KEY, "south": KEY}
    assert found.privacy == PrivacyRules(4.0)


def test_a_preset_that_is_not_there_is_an_error_that_names_the_nearest():
    for ask in (preset, policy_text):
        with pytest.raises(InputError, match=r"there is no preset 'strikt'; did you mean 'strict'\?"):
            ask("strikt")


# ---------------------------------------------------------------- finding


def test_a_policy_is_found_by_name_or_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text("min_rows = 7")
    Path("standard").write_text("min_rows = 7")
    assert find_policy("mine.toml") == find_policy(str(tmp_path / "mine.toml")) == Policy(min_rows=7)
    assert find_policy("simulation") == Policy.simulation()
    assert find_policy("standard") == preset("standard")  # a name goes before a file of that name


def test_a_policy_that_is_nowhere_is_an_error_that_names_what_there_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="did you mean 'simulation'") as near:
        find_policy("simulate")
    with pytest.raises(InputError, match=r"no file called 'rules\.toml'") as far:
        find_policy("rules.toml")
    assert "did you mean" not in str(far.value)
    for told in (str(near.value), str(far.value)):
        assert "private, strict, standard, research, simulation" in told
        assert "coterie policy init" in told
    with pytest.raises(InputError, match="not a TOML file"):
        find_policy(str(tmp_path))
    with pytest.raises(InputError, match=r"there is no such file; `coterie policy init .*gone\.toml` writes one"):
        read_policy(tmp_path / "gone.toml")


# ---------------------------------------------------------------- checking


GOOD = {
    "methods": ('["lloyd"]', frozenset({"lloyd"})),
    "protection": ('"none"', "none"),
    "min_group": ("3", 3),
    "levels": ('"listed"', "listed"),
    "per_site_results": ('"averages"', "averages"),
    "min_roster": ("1", 1),
    "rosters": ('"any"', "any"),
    "halves": ("true", True),
    "composition": ("true", True),
    "peers": (f'{{north = "{KEY.hex()}"}}', {"north": KEY}),
    "verification": ('"off"', "off"),
    "max_questions": ("1", 1),
    "max_runs": ("1", 1),
    "orders_may_choose": ('["points"]', frozenset({"points"})),
    "approval": ('"always"', "always"),
    "name_decisions": ("true", True),
    "min_rows": ("0", 0),
    "privacy": ("{epsilon = 2, delta = 1e-7}", PrivacyRules(2.0, 1e-7)),
    "alignment_key": (f'"{KEY.hex()}"', KEY),
    "method_protection": ('{lloyd = {protection = "groups"}}', {"lloyd": "groups"}),
}


def test_every_rule_can_be_written(written):
    assert list(GOOD) == RULES
    found = written("\n".join(f"{WRITTEN.get(rule, rule)} = {text}" for rule, (text, _) in GOOD.items()))
    assert found == Policy(**{rule: value for rule, (_, value) in GOOD.items()})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('methods = "lloyd"', r"methods is a list of names \(left out, it allows all of them\), not 'lloyd'"),
        ("methods = [1]", r"methods is a list of names \(left out, it allows all of them\), not \[1\]"),
        ('methods = ["loyd"]', re.escape(f"there is no method 'loyd'; there are {', '.join(sorted(METHODS))}")),
        ('per_site_results = "all"', "per_site_results is none, averages or rows, not 'all'"),
        ("per_site_results = []", r"per_site_results is none, averages or rows, not \[\]"),
        ('protection = "noise"', r"protection='noise' needs a budget: .* in a policy file \[privacy\] with epsilon"),
        ('protection = "masks"', "protection is groups, noise or none, not 'masks'"),
        ("[method.lloyd]\nprotection = 'noise'", "protection='noise' needs a budget"),
        ("privacy = 4", r"\[privacy\] is a table with a line epsilon = 4.0, not 4"),
        ("[privacy]", r"\[privacy\] needs the budget, such as epsilon = 4.0"),
        ("[privacy]\nepsilon = -1", r"\[privacy\]: epsilon=-1.0 must be a number at least 0.001"),
        ("[privacy]\nepsilon = 'big'", r"\[privacy\]: Expected `float`, got `str`"),
        ("[privacy]\nepsilon = 1\ndelta = 2", r"\[privacy\]: delta=2.0 must be a number"),
        ("[privacy]\nepsilon = 1\nunit = ''", r"\[privacy\]: unit=''; it is 'row', or the name of a column"),
        ("[privacy]\nepsilom = 1", r"\[privacy\] has no 'epsilom'; did you mean 'epsilon'"),
        ("[privacy]\nepsilon = 1\nmin_rows = 3", r"min_rows stands below \[privacy\] .*; move it above"),
        ('rosters = "free"', "rosters is fixed, shrinking or any, not 'free'"),
        ("rosters = true", "rosters is fixed, shrinking or any, not True"),
        ("min_group = 2", "min_group is a whole number from 3 to 50, not 2"),
        ("min_group = 51", "min_group is a whole number from 3 to 50, not 51"),
        ("min_roster = 0", "min_roster is a whole number, at least 1, not 0"),
        ("max_questions = 0", "max_questions is a whole number, at least 1, not 0"),
        ("min_rows = -1", "min_rows is a whole number, at least 0, not -1"),
        ("min_group = 5.5", "min_group is a whole number from 3 to 50, not 5.5"),
        ("method = 3", r"method is a table for each method, \[method.NAME\], not 3"),
        ("[method.loyd]\nprotection = 'none'", r"\[method.loyd\]: there is no such method; did you mean 'lloyd'"),
        ("[method.lloyd]\nmin_group = 3", r'\[method.lloyd\] has one line, protection = "groups", "noise" or "none"'),
        ("single_answers = 'averages'", r'single_answers \(now per_site_results = "averages"\): no longer a rule'),
        ("min_count = 4", r"min_count \(now min_group = 4\): no longer a rule; `coterie policy upgrade .*` rewrites"),
        ("min_count = 1", r'min_count \(now protection = "none"\)'),
        ("gram_rows = 8\ngram_rows_of = 'own'", r"gram_rows \(leave it out\), gram_rows_of \(leave it out\)"),
        ("min_roster = true", "min_roster is a whole number, at least 1, not True"),
        ('peers = "north"', r'\[peers\] is a table with a line NAME = "KEY" for every other site, not \'north\''),
        ("[peers]", r"\[peers\] is a table .*, not \{\}; leave it out to pin no key"),
        ("[peers]\nnorth = 3", r"the key of north under \[peers\] is 3; a public key is 32 bytes"),
        ('[peers]\nnorth = "ab"', r"'ab' \(2 characters\); a public key is 32 bytes"),
        ("[peers]\nmin_rows = 20", r"min_rows = 20 stands below \[peers\] and so is read as a site; move it above"),
        ("[peers]\nalignment_key = 'AAAA'", r"alignment_key stands below \[peers\] and so is read as a site"),
        (f"[peers]\nalignement_key = '{KEY.hex()}'", r"alignement_key stands below \[peers\]"),
        ("alignment_key = 'secret'", "alignment_key is 32 bytes as 44 characters of base64 or 64 hex digits"),
        ("roster = 'any'", "there is no key 'roster'; did you mean 'rosters'"),
        ("= 3", "not a TOML file"),
    ],
)
def test_a_bad_value_is_an_error_that_says_what_is_allowed(written, text, told):
    with pytest.raises(InputError, match=told) as found:
        written(text)
    assert "site.toml: " in str(found.value)


@pytest.mark.parametrize("text", ["[peers]\nalignment_key = 'S3CR3T'", "alignment_key = 'S3CR3T'"])
def test_a_secret_is_never_quoted(written, text):
    with pytest.raises(InputError) as found:
        written(text)
    assert "S3CR3T" not in str(found.value)


@given(st.binary(min_size=32, max_size=32))
def test_a_key_is_the_same_in_base64_and_in_hex(key):
    for text in (key.hex(), key.hex().upper(), base64.b64encode(key).decode()):
        assert _key(text) == key


@given(
    st.one_of(
        st.binary(max_size=64).filter(lambda key: len(key) != 32).map(bytes.hex),
        st.binary(max_size=64).filter(lambda key: len(key) != 32).map(lambda key: base64.b64encode(key).decode()),
        st.sampled_from([KEY.hex()[:-1] + "g", KEY.hex() + " ", base64.b64encode(KEY).decode()[:-1], "é" * 64]),
        st.just(base64.urlsafe_b64encode(b"\xff" * 32).decode()),
    )
)
def test_nothing_but_thirty_two_bytes_is_a_key(text):
    with pytest.raises(InputError, match="a public key is 32 bytes"):
        _key(text)


def _key(text):
    from coterie.sites.policy_files import _checked

    return _checked("site.toml", "peers", {"north": text})["north"]


# ---------------------------------------------------------------- explaining


OTHER = {
    "methods": frozenset({"lloyd"}),
    "protection": "none",
    "min_group": 6,
    "levels": "listed",
    "per_site_results": "rows",
    "min_roster": 4,
    "rosters": "fixed",
    "halves": True,
    "composition": True,
    "peers": {"north": KEY, "south": KEY},
    "verification": "required",
    "max_questions": 77,
    "max_runs": 78,
    "orders_may_choose": frozenset({"points"}),
    "approval": "always",
    "name_decisions": True,
    "min_rows": 78,
    "privacy": PrivacyRules(7.5, 1e-9),
    "alignment_key": KEY,
    "method_protection": {"lloyd": "none"},
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", [*PRESETS, "simulation"])
def test_a_rule_that_changes_changes_the_explanation(name, rule):
    policy = find_policy(name)
    changed = replace(policy, **{rule: OTHER[rule]})
    if policy.protection == "none" and rule in ("min_group", "method_protection"):
        changed = replace(changed, method_protection={"lloyd": "groups"})  # there it means something
    is_same = changed == policy if rule != "verification" else changed.verifies == policy.verifies
    is_idle = policy.protection == "noise" and rule in ("min_group", "min_rows")  # nothing tells of sizes there
    assert (explained(changed) == explained(policy)) == (is_same or is_idle)
    if type(OTHER[rule]) is int and not is_idle:
        assert str(OTHER[rule]) in explained(changed)


@pytest.mark.parametrize("name", [*PRESETS, "simulation"])
def test_an_explanation_is_made_of_whole_sentences(name):
    for sentence in explain_policy(find_policy(name)):
        assert sentence[0].isupper()
        assert sentence.endswith(".")
        assert "None" not in sentence


def test_the_standard_explanation_says_what_groups_do_and_where_they_stop():
    told = explained(preset("standard"))
    for words in (
        "Everything that ever leaves is a function of fixed groups of at least 5 rows",
        "groups of 5 to 9 similar rows once, before any question",
        "not differential privacy",
        "can work out the remaining one",
        "at least 3 sites",
        "none may join or come back",
        "No other site's key is pinned",
        "at most 2000 questions in one run",
        "at least 20 rows",
    ):
        assert words in told


def test_the_private_explanation_says_what_noise_does_and_where_it_stops():
    told = explained(preset("private"))
    for words in (
        "No row, group or total leaves this site as it is",
        "one budget of epsilon = 4 at delta = 1e-06, which this site keeps in its ledger",
        "Adding or removing one row changes the probability",
        "by a factor of at most exp(4) = 54.6, up to a probability of 1e-06",
        "Neither time nor changed rows renew it",
        "sites that collude with the server can subtract their own shares",
        "A person with rows at two sites is protected by each of them apart, and what both give away adds up",
        "declares the range of each column in any case",
        "depends on these rules and on the budget, and on no row",
        "however few rows it holds",
    ):
        assert words in told
    assert "groups of" not in told
    patients = replace(preset("private"), privacy=PrivacyRules(1.0, 1e-6, "patient"))
    assert "removing all rows with one value in 'patient' (of which at most 1 counts) changes" in explained(patients)


def test_where_other_answers_have_no_noise_epsilon_is_not_said_to_bound_the_table(written):
    bounded = "not what is known of the table"
    assert bounded not in explained(preset("private"))
    assert "of the table" not in explained(preset("standard"))
    assert bounded in explained(Policy(privacy=PrivacyRules(1.0)))
    exempt = written(
        'protection = "noise"\n[privacy]\nepsilon = 1\n[method.lloyd]\nprotection = "groups"\n[method.ck]\n'
        'protection = "none"\n'
    )
    told = explained(exempt)
    assert "But lloyd computes with groups of at least 5 rows." in told
    assert "Except in ck: there the rows as they are enter the computation." in told
    assert bounded in told
    assert "lloyd" not in told.split("Refused as a consequence")[1].split("(they cannot")[0]
    assert "for rows that are too few" in told  # a refusal may tell of rows again
    assert "nothing is charged to it" in explained(Policy(protection="none", privacy=PrivacyRules(1.0)))


BOX = ([-50.0] * 2, [50.0] * 2)


def test_single_methods_may_be_private_under_groups(written):
    policy = written('[privacy]\nepsilon = 2\n[method.federated-kmeans]\nprotection = "noise"\n')
    assert "But federated-kmeans is answered only with differential privacy" in explained(policy)
    coterie.fit(_estimator("lloyd", {}), ROWS, policy=policy)
    with pytest.raises(InputError, match="a, b, c, d and 2 more answers only differentially private orders"):
        coterie.fit(_estimator("federated-kmeans", {}), ROWS, policy=policy)
    private = _estimator("federated-kmeans", {"privacy": Privacy(1.0)})
    assert coterie.fit(private, ROWS, policy=policy, ranges=BOX).privacy_.epsilon == 1.0


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not method.can_be_private])
def test_methods_that_cannot_be_private_are_called_refused_and_are(name):
    (told,) = [words for words in explain_policy(preset("private")) if words.startswith("Refused as a consequence")]
    assert f" {name}" in told
    assert preset("private").protection_of(name) == "noise"


def test_a_private_order_declares_ranges_whatever_orders_may_choose():
    private = _estimator("federated-kmeans", {"privacy": Privacy(1.0)})
    strict = replace(preset("strict"), privacy=PrivacyRules(1.0))
    coterie.fit(private, ROWS, policy=strict, ranges=BOX)
    with pytest.raises(RunError, match="does not let an order choose points, ranges or parameters"):
        coterie.fit(_estimator("federated-kmeans", {}), ROWS, policy=strict, ranges=BOX)


def test_what_is_off_is_called_off():
    told = explained(Policy.simulation())
    for words in ("also every single row", "rows as they are", "hides nothing", "any number of"):
        assert words in told
    assert "Refused as a consequence" not in told


def test_pinned_keys_are_named_and_too_few_of_them_pointed_out():
    told = explained(Policy(peers={"south": KEY, "north": KEY}))
    assert "under those keys: north, south." in told
    assert "joins none" not in told
    assert "fewer than the 3 sites of a masked sum: it joins none" in explained(Policy(peers={"south": KEY}))
    assert "under those keys: nobody." in explained(Policy(peers={}))


def test_consequences_are_told_of_allowed_methods_only():
    told = explained(Policy(methods=frozenset({"lloyd", "federated-kmeans", "one-shot"})))
    assert "Refused as a consequence: one-shot; a one-shot start of federated-kmeans or lloyd; " in told
    told = explained(Policy(methods=frozenset({"lloyd"})))
    assert "Refused as a consequence: a one-shot start of lloyd." in told
    assert "no method at all" in explained(Policy(methods=frozenset()))


ROWS = dict(zip(("a", "b", "c", "d", "e", "f"), np.array_split(blobs(900, 2, 3, seed=3), 6), strict=True))


SINGLE = "does not allow this per-site result"
STARTS = "a one-shot start of federated-kmeans or lloyd or landmarks or dspgd"


@pytest.mark.parametrize(
    ("method", "parameters", "words", "reason"),
    [
        ("one-shot", {}, "one-shot;", SINGLE),
        ("lloyd", {"init": "one-shot"}, STARTS, SINGLE),
        ("federated-kmeans", {"init": "one-shot"}, STARTS, SINGLE),
        (
            "federated-kmeans",
            {"init": "var-part", "fraction": 0.5},
            "on a sample of the sites (fraction below 1)",
            "does not allow a sum over these sites",
        ),
    ],
)
def test_what_is_called_refused_is_refused(method, parameters, words, reason):
    assert words in explained(preset("standard"))
    with pytest.raises(RunError, match=reason):
        coterie.fit(_estimator(method, parameters), ROWS, policy=preset("standard"))
    assert words not in explained(Policy.simulation())
    coterie.fit(_estimator(method, parameters), ROWS, policy=Policy.simulation())


def test_a_sample_of_the_sites_runs_where_any_roster_is_allowed_and_nowhere_else():
    sampled = _estimator("federated-kmeans", {"init": "var-part", "fraction": 0.5})
    assert "fraction below 1" not in explained(preset("research"))
    coterie.fit(sampled, ROWS, policy=preset("research"))
    shrinking = replace(preset("research"), rosters="shrinking")
    assert "(fraction below 1)" in explained(shrinking)
    with pytest.raises(RunError, match="does not allow a sum over"):
        coterie.fit(sampled, ROWS, policy=shrinking)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("method", ["federated-kmeans", "lloyd", "one-shot"])
def test_what_is_not_called_refused_runs(name, method):
    refused = [words for words in explain_policy(preset(name)) if words.startswith("Refused as a consequence")]
    if not any(re.search(rf" {method}[;,] ", words) for words in refused):
        ranges = ([-50.0] * 2, [50.0] * 2) if name == "private" else None
        privacy = {"privacy": Privacy(1.0)} if name == "private" else {}
        coterie.fit(_estimator(method, privacy), ROWS, policy=preset(name), ranges=ranges)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.needs_rows])
def test_methods_that_need_rows_are_called_refused_until_a_table_exempts_them(name, written):
    assert name in explained(preset("standard"))
    exempt = written(f'[method.{name}]\nprotection = "none"\n')
    assert exempt.protection_of(name) == "none"
    assert exempt.protection_of("lloyd") == "groups"
    assert f"Except in {name}" in explained(exempt)


OLD = """single_answers = "averages"
min_count = 7
min_roster = 4
gram_rows = 8
max_runs = 12

[peers]
north = "KEY"
""".replace("KEY", KEY.hex())


def test_an_older_file_is_rewritten_under_the_rules_of_today(tmp_path, written):
    path = tmp_path / "old.toml"
    path.write_text(OLD)
    with pytest.raises(InputError, match="coterie policy upgrade"):
        read_policy(path)
    found = written(upgraded_policy(path))
    assert found == Policy(per_site_results="averages", min_group=7, min_roster=4, max_runs=12, peers={"north": KEY})


@pytest.mark.parametrize("name", PRESETS)
def test_upgrading_a_file_of_today_changes_no_rule(name, tmp_path, written):
    path = tmp_path / "new.toml"
    path.write_text(policy_text(name) + '\n[method.ck]\nprotection = "none"\n')
    assert written(upgraded_policy(path)) == read_policy(path)


def _estimator(method, parameters):
    return make_estimator(method, {"n_clusters": 3, "random_state": 0, **parameters})


def test_the_unit_of_a_budget_is_part_of_how_a_table_is_protected():
    """What was charged for rows is no charge for persons: the site does not start until the data officer says so."""
    rows, persons = (Policy(protection="noise", privacy=PrivacyRules(4.0, unit=unit)) for unit in ("row", "patient"))
    assert (rows.protections, persons.protections) == ("noise", "noise by patient")
    assert rows.bounds_table
    assert persons.bounds_table
    assert not Policy(privacy=PrivacyRules(4.0)).bounds_table
    assert not replace(rows, method_protection={"lloyd": "groups"}).bounds_table
