"""The commands by which organisations make their own keys and an authority signs them."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("nvflare")

FINGERPRINT = re.compile(r"([0-9a-f]{4} ){15}[0-9a-f]{4}")


@pytest.fixture
def north(tmp_path, cli):
    """A site that enrolled, and what the commands said."""
    rows = np.random.default_rng(0).normal(size=(40, 2))
    np.savetxt("north.csv", rows, delimiter=",", header="a,b", comments="")
    said = [cli("enroll", "site", "north", "--kit", "north")]
    said.append(cli("provision", "--sign", "north/north.request", "--out", "kits"))
    said.append(cli("install", "kits/sites/north.kit", "--kit", "north"))
    assert [done[0] for done in said] == [0, 0, 0], said
    return [done[1] for done in said]


def test_three_steps_make_a_site_that_can_start(north, cli):
    asked, signed, installed = (FINGERPRINT.search(text).group() for text in north)
    assert asked == signed
    assert installed != asked
    assert "private keys made here" not in north[1]
    done = cli("site", "start", "--kit", "north", "--data", "north.csv", "--check")
    assert done[0] == 0, done[2]
    assert "40 rows of 2 columns" in done[1]


def test_a_revoked_site_is_told_so_and_does_not_start(north, cli):
    assert cli("provision", "--revoke", "north", "--out", "kits")[0] == 0
    done = cli("site", "revoked", "kits/revoked", "--kit", "north")
    assert "list 1 with 1 revoked certificate" in done[1]
    done = cli("site", "start", "--kit", "north", "--data", "north.csv", "--check")
    assert done[0] == 2
    assert "site north was revoked" in done[2]


def test_kits_with_keys_say_what_they_are_for(cli):
    done = cli("provision", "--sites", "a", "--out", "kits")
    assert "contain private keys made here: use them for a federation on one machine or a trial" in done[1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["provision", "--out", "kits"], "there is no site"),
        (["provision", "--revoke", "a", "--sites", "a", "--out", "kits"], "--revoke goes with --out only"),
        (["provision", "--revoke", "a", "--out", "kits"], "holds no authority"),
        (["provision", "--sign", "nowhere.request", "--out", "kits"], "no such file"),
        (["install", "nowhere.kit", "--kit", "nowhere"], "no request was made"),
        (["enroll", "site", "a b", "--kit", "a"], "letters, digits"),
        (["site", "revoked", "nowhere", "--kit", "nowhere"], "no start-up kit"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path, cli, words, told):
    done = cli(*words)
    assert done[0] == 2
    assert told in done[2]
    assert list(tmp_path.iterdir()) == []
