"""``coterie certificate``, and the certificate in ``coterie ledger verify``."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import msgspec
import pytest

from coterie.cli import certificates
from coterie.messages.chain import Chain, head_path, read_chain
from coterie.messages.identity import fingerprint
from coterie.methods.order import SignedOrder
from tests.cli.conftest import FILES

RUN = ("cluster", *FILES, "-k", 3, "--out", "run")


@pytest.fixture
def run(three, cli):
    code, _, told = cli(*RUN)
    assert code == 0, told
    return Path("run")


def read(path):
    return json.loads(Path(path).read_text())


def test_a_certificate_is_shown_copied_and_verified(run, cli):
    code, out, _ = cli("certificate", "run", "--out", "copy.json")
    assert code == 0
    assert Path("copy.json").read_bytes() == (run / "certificate.json").read_bytes()
    said = "owner ordered federated-kmeans over 3 columns"
    for words in ("north", "groups of 5+", "(all)", "authority was made for this run", said):
        assert words in out
    assert cli("certificate", "--json", "show", "run")[0] == 2
    facts = json.loads(cli("certificate", "run", "--json")[1])
    assert (facts["order"]["analyst"], facts["order"]["run"]) == ("owner", facts["run"])
    assert facts["order"]["parameters"]["n_clusters"] == 3
    assert facts["sites"]["west"]["lines"] < len(read_chain(run / "journal" / "sites" / "west.jsonl"))
    code, out, _ = cli("certificate", "verify", "copy.json")
    assert (code, "verified the order of owner and the statements of 3 of 3 sites" in out) == (0, True)
    assert cli("certificate", "run", "--out", "copy.json")[0] == 2  # it is there


def test_verify_ends_with_1_if_anything_does_not_fit(run, cli):
    found = read(run / "certificate.json")
    sites = found["sites"]
    sites["north"], sites["south"] = sites["south"], sites["north"]
    Path("swapped.json").write_text(json.dumps(found))
    code, out, _ = cli("certificate", "verify", "swapped.json")
    assert code == 1
    assert "north: the statement is not signed by this site's key." in out
    code, out, _ = cli("certificate", "verify", "swapped.json", "--json")
    assert (code, len(json.loads(out)["problems"])) == (1, 4)
    assert cli("ledger", "verify", "run")[0] == 0


def test_the_authority_is_that_of_a_file_a_text_or_a_fingerprint(run, cli):
    key = read(run / "certificate.json")["authority"]
    Path("authority").write_text(key + "\n")
    digits = fingerprint(certificates.from_text(key.encode()))
    for given in ("authority", key, digits, digits.replace(" ", "").upper()):
        assert cli("certificate", "verify", run / "certificate.json", "--authority", given)[0] == 0
    other = "A" + key[1:] if key[0] != "A" else "B" + key[1:]
    for given in (other, fingerprint(b"other")):
        assert cli("certificate", "verify", run / "certificate.json", "--authority", given)[0] == 1
    code, _, told = cli("certificate", "verify", run / "certificate.json", "--authority", "nowhere")
    assert (code, "no key of an authority" in told) == (2, True)


def test_the_analyst_s_signature_is_checked_as_well(run, cli):
    """The server writes another order, and says that the same analyst gave it."""
    found = read(run / "certificate.json")
    signed = SignedOrder.from_bytes(base64.b64decode(found["order"]))
    order = msgspec.structs.replace(signed.read(), parameters={"n_clusters": 4})
    forged = msgspec.structs.replace(signed, order=order.to_bytes())
    Path("forged.json").write_text(json.dumps(found | {"order": base64.b64encode(forged.to_bytes()).decode()}))
    code, out, _ = cli("certificate", "verify", "forged.json")
    assert (code, "The order is not signed by a key that the authority certified for owner" in out) == (1, True)
    assert out.count("the site accepted another order than the certificate shows") == 3


def test_a_run_with_plain_sums_has_a_certificate_too(three, cli):
    assert cli(*RUN, "--policy", "simulation")[0] == 0
    code, out, _ = cli("certificate", "run")
    assert (code, "none" in out, "(all)" in out) == (0, True, False)
    assert cli("certificate", "verify", "run/certificate.json")[0] == 0
    assert cli("ledger", "verify", "run")[0] == 0


def test_a_run_without_a_certificate_says_why(run, cli):
    (run / "certificate.json").unlink()
    code, _, told = cli("certificate", "run")
    assert (code, "or one of an earlier version" in told) == (2, True)
    assert cli("certificate", "nowhere")[0] == 2


def test_ledgers_are_verified_against_the_certificate(run, cli):
    code, out, _ = cli("ledger", "verify", "run")
    assert (code, "The certificate names the heads of 3 of these ledgers" in out) == (0, True)
    path = run / "journal" / "sites" / "north.jsonl"
    lines = [{name: value for name, value in line.items() if name != "chain"} for line in read_chain(path)]
    path.unlink()
    head_path(path).unlink()
    key = path.with_name(path.name + ".sign")
    key.rename("key")
    chain = Chain(path)
    for line in lines:
        chain.append(line | ({"time": 0.0} if line["event"] == "answer" else {}))
    chain.close()
    code, _, told = cli("ledger", "verify", "run")
    assert (code, "is not the ledger whose" in told) == (4, True)
    Path("key").rename(key)
    code, _, told = cli("ledger", "verify", "run")
    assert (code, "has no head that this site signed" in told) == (4, True)


def test_the_certificate_must_be_that_of_the_run(run, cli):
    found = read(run / "certificate.json")
    (run / "certificate.json").write_text(json.dumps(found | {"run": "00" * 16}))
    code, _, told = cli("ledger", "verify", "run")
    assert (code, "of another run" in told) == (4, True)


def test_a_data_officer_acknowledges_a_break(three, cli):
    pytest.importorskip("nvflare")
    assert cli("provision", "--sites", "north,south", "--out", "kits")[0] == 0
    kit = Path("kits/sites/north")
    assert cli("site", "start", "--kit", kit, "--data", "north.csv", "--check")[0] == 0
    code, out, _ = cli("site", "acknowledge", "--kit", kit, "--yes")
    assert (code, "1 break" in out) == (0, True)
    facts = json.loads(cli("site", "status", "--kit", kit, "--json")[1])
    assert (facts["acknowledged_breaks"], facts["is_contradicted"]) == (1, False)
    code, out, _ = cli("ledger", "verify", kit / "coterie" / "ledger.jsonl")
    assert (code, "and the signed head" in out) == (0, True)
    head = head_path(kit / "coterie" / "ledger.jsonl")
    head.write_text(head.read_text().splitlines()[0] + "\n")
    for words in (("site", "status"), ("site", "start", "--check")):
        code, _, told = cli(*words, "--kit", kit)
        assert (code, "has no head that this site signed" in told) == (4, True)
