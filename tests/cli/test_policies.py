"""Policies on the command line: written, checked, explained; keys printed and pinned."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

import coterie
from coterie.cli import terminal
from coterie.errors import RunError
from coterie.estimators.registry import make_estimator
from coterie.sites.policy import Policy
from coterie.sites.policy_files import PRESETS, explain_policy, preset, read_policy
from tests.federations import blobs


def test_a_policy_file_starts_from_the_standard_one(cli):
    code, out, _ = cli("policy", "init")
    assert code == 0
    assert "policy explain policy.toml" in out
    assert read_policy(Path("policy.toml")) == preset("standard")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_written_checked_and_explained(cli, name):
    assert cli("policy", "init", "site.toml", "--preset", name)[0] == 0
    assert cli("policy", "check", "site.toml")[1] == "site.toml is valid.\n"
    from_file, by_name = cli("policy", "explain", "site.toml")[1], cli("policy", "explain", name)[1]
    assert from_file == by_name
    assert json.loads(cli("policy", "explain", name, "--json")[1]) == explain_policy(preset(name))
    assert cli("policy", "check", name)[0] == 0


def test_a_file_that_is_there_is_overwritten_only_when_told_so(cli):
    Path("site.toml").write_text("min_rows = 3")
    code, _, err = cli("policy", "init", "site.toml")
    assert (code, "site.toml already exists; pass --force" in err) == (2, True)
    assert Path("site.toml").read_text() == "min_rows = 3"
    assert cli("policy", "init", "site.toml", "--force")[0] == 0
    assert read_policy(Path("site.toml")) == preset("standard")


def test_an_unknown_preset_writes_nothing(cli):
    code, _, err = cli("policy", "init", "site.toml", "--preset", "standart")
    assert (code, "did you mean 'standard'?" in err) == (2, True)
    assert not Path("site.toml").exists()


@pytest.mark.parametrize("command", ["check", "explain"])
def test_an_unknown_name_is_an_error_that_names_the_policies(cli, command):
    code, _, err = cli("policy", command, "simulations")
    assert code == 2
    assert "did you mean 'simulation'?" in err
    assert "strict, standard, research, simulation" in err


def test_a_bad_line_is_named(cli):
    Path("bad.toml").write_text('rosters = "open"')
    for command in ("check", "explain"):
        code, _, err = cli("policy", command, "bad.toml")
        assert (code, "bad.toml: rosters is fixed, shrinking or any, not 'open'" in err) == (2, True)


def test_an_explanation_fits_a_narrow_terminal_and_loses_no_word(cli, monkeypatch):
    monkeypatch.setattr(terminal.console, "_width", 80)
    shown = cli("policy", "explain", "standard")[1]
    assert max(map(len, shown.splitlines())) <= 80
    assert " ".join(shown.split()) == " ".join(f"- {sentence}" for sentence in explain_policy(preset("standard")))
    assert "[peers]" in shown


# ---------------------------------------------------------------- keys


def test_a_sites_public_key_is_printed_and_its_secret_is_not(cli):
    secret = bytes(range(32))
    Path("north.jsonl.key").write_bytes(secret)
    code, out, _ = cli("policy", "key", "north.jsonl")
    assert code == 0
    public = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    assert out == base64.b64encode(public).decode() + "\n"


def test_a_key_that_is_not_there_is_made_only_when_told_so(cli):
    code, _, err = cli("policy", "key", "sites/north.jsonl")
    assert (code, "there is no such key" in err, "--new" in err) == (2, True, True)
    assert not Path("sites").exists()
    first = cli("policy", "key", "sites/north.jsonl", "--new")
    assert first[0] == 0
    assert len(Path("sites/north.jsonl.key").read_bytes()) == 32
    assert Path("sites/north.jsonl.key").stat().st_mode & 0o077 == 0
    assert cli("policy", "key", "sites/north.jsonl", "--new") == cli("policy", "key", "sites/north.jsonl") == first


def test_a_damaged_key_is_an_error(cli):
    Path("north.jsonl.key").write_bytes(b"short")
    code, _, err = cli("policy", "key", "north.jsonl")
    assert (code, "has 5 bytes; a key has 32" in err) == (2, True)


def test_sites_that_pin_the_keys_printed_here_know_each_other_and_nobody_else(cli):
    tables = dict(zip(("north", "south", "west"), np.array_split(blobs(150, 2, 3, seed=1), 3), strict=True))
    estimator = make_estimator("lloyd", {"n_clusters": 3, "random_state": 0})
    for run, is_right in (("right", True), ("wrong", False)):
        keys = {name: cli("policy", "key", f"{run}/sites/{name}.jsonl", "--new")[1].strip() for name in tables}
        pins = {**keys, "west": keys["west"] if is_right else keys["south"]}
        Path("north.toml").write_text("[peers]\n" + "\n".join(f'{name} = "{key}"' for name, key in pins.items()))
        assert "under those keys: north, south, west." in cli("policy", "explain", "north.toml")[1]
        policies = {"north": read_policy(Path("north.toml")), "south": Policy(), "west": Policy()}
        if is_right:
            coterie.fit(estimator, tables, policy=policies, journal=run)
            continue
        with pytest.raises(RunError):
            coterie.fit(estimator, tables, policy=policies, journal=run)
        shown = cli("ledger", "show", f"{run}/sites/north.jsonl")[1]
        assert "a refusal" in shown
        assert "the server saw: nothing." in shown
