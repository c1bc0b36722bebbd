"""Enrolment: private keys stay where they were made, and whatever comes from others is checked before it is used."""

from __future__ import annotations

import json
import re
import shutil
import stat
from datetime import timedelta

import msgspec
import pytest

from coterie.engines.nvflare import tls
from coterie.engines.nvflare.handover import install
from coterie.engines.nvflare.kits import provision, read_kit
from coterie.engines.nvflare.requests import enroll, own_request, read_request
from coterie.engines.nvflare.signing import revoke
from coterie.errors import InputError, Untrusted
from coterie.messages.identity import request_text, sign
from coterie.sites.identity_files import IdentityFiles, as_text, from_text
from coterie.sites.installed import InstalledSite

from .enrolled import ANA, unpacked

pytest.importorskip("nvflare")

PRIVATE = re.compile(rb"PRIVATE KEY")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_kit_by_request_has_what_a_kit_made_in_one_place_has(joined, tmp_path):
    made = provision(tmp_path, ["north"], server="center.example.org", port=9000, analysts=[ANA])
    for name, other in (("center.example.org", "server"), ("north", "north"), (ANA, ANA)):
        own = joined.own(name)
        found, usual = ({p.relative_to(f) for p in f.rglob("*") if p.is_file()} for f in (own, made[other].folder))
        names = {str(path) for path in found}
        assert names - {str(path) for path in usual} <= {f"{name}.request", "startup/identity/authority"}
        assert {str(path) for path in usual} <= names
        kit = read_kit(own)
        assert (kit.kind, kit.name, kit.host, kit.port) == (joined.roles[name], name, "center.example.org", 9000)
        for path in usual:
            if path.parts[0] == "local" or path.name == "comm_config.json":
                assert (own / path).read_bytes() == (made[other].folder / path).read_bytes(), path


def test_certificates_are_as_provisioning_makes_them(joined, tmp_path):
    from cryptography import x509

    made = provision(tmp_path, ["north"], server="center.example.org", port=9000, analysts=[ANA])
    for name, other in (("center.example.org", "server"), ("north", "north"), (ANA, ANA)):
        file = "server.crt" if other == "server" else "client.crt"
        own, usual = (
            x509.load_pem_x509_certificate((folder / "startup" / file).read_bytes())
            for folder in (joined.own(name), made[other].folder)
        )
        assert own.subject == usual.subject
        assert own.issuer == usual.issuer
        kinds = x509.SubjectAlternativeName
        assert own.extensions.get_extension_for_class(kinds) == usual.extensions.get_extension_for_class(kinds)
        assert abs(own.not_valid_after_utc - usual.not_valid_after_utc) < timedelta(hours=1)


def test_no_private_key_leaves_its_folder(joined):
    secrets = [
        path.read_bytes() for name in joined.roles for path in joined.own(name).rglob("*key") if path.is_file()
    ]
    assert len(secrets) == 5
    files = [path for path in joined.out.rglob("*") if path.is_file()]
    files += [next(joined.own(name).glob("*.request")) for name in joined.roles]
    contents = [raw for path in files if path.suffix == ".kit" for raw in unpacked(path).values()]
    contents += [path.read_bytes() for path in files if path.suffix != ".kit"]
    assert not any(secret in raw for secret in secrets for raw in contents)
    assert not any(PRIVATE.search(raw) for path in files if path.suffix == ".kit" for raw in unpacked(path).values())
    state = json.loads((joined.authority / "workspace/coterie/state/cert.json").read_text())
    assert set(state) == {"root_cert", "root_pri_key"}


def test_files_with_keys_are_for_their_owner_alone(joined):
    for folder in (joined.authority, *(joined.own(name) / "startup" for name in joined.roles)):
        paths = list(folder.rglob("*"))
        assert {mode(path) for path in (folder, *paths) if path.is_dir()} == {0o700}
        assert {mode(path) for path in paths if path.is_file()} == {0o600}
    assert {mode(joined.own(name)) for name in joined.roles} == {0o700}


def test_asking_again_keeps_keys_and_request(places):
    before = {path: path.read_bytes() for path in places.own("north").rglob("*") if path.is_file()}
    path = places.ask("site", "north")
    assert {path: path.read_bytes() for path in before} == before
    path.unlink()
    assert places.ask("site", "north").read_bytes() == before[path]
    for role, name in (("site", "south"), ("analyst", ANA), ("server", "north")):
        with pytest.raises(InputError, match="is the folder of site north"):
            enroll(places.own("north"), role, name)


@pytest.mark.parametrize(
    ("role", "name", "words"),
    [
        ("site", "a b", "letters, digits"),
        ("site", "../x", "letters, digits"),
        ("analyst", "ana", "e-mail"),
        ("server", "no host", "host name"),
        ("analyst", f"{'a' * 80}@b.example", "64 characters"),
    ],
)
def test_names_are_checked_before_a_key_is_made(tmp_path, role, name, words):
    with pytest.raises(InputError, match=words):
        enroll(tmp_path / "kit", role, name)
    assert not (tmp_path / "kit").exists()


def test_a_request_that_was_changed_is_not_signed(places):
    path = places.ask("site", "south")
    good = msgspec.json.decode(path.read_bytes())
    other = msgspec.json.decode(next(places.own("north").glob("*.request")).read_bytes())
    changes = [
        {"name": "west"}, {"role": "analyst"}, {"role": "server"}, {"tls": other["tls"]}, {"key": other["key"]},
        {"signature": other["signature"]}, {"more": 1}, {"signature": ""}, {"key": "", "signature": ""},
        {"name": 1}, {"tls": "nothing"},
    ]  # fmt: skip
    for change in changes:
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(InputError, match=r"south\.request"):
            places.sign(path)
    assert not (places.out / "sites" / "south.kit").exists()
    key = IdentityFiles(places.own("north")).key()
    text = request_text("site", "south", good["tls"], from_text(other["key"].encode()))
    mixed = {**good, "key": other["key"], "signature": as_text(sign(key, text)).strip()}
    path.write_text(json.dumps(mixed))
    assert read_request(path).name == "south"  # both keys say so: this is a request


def test_a_name_belongs_to_its_keys_until_they_are_revoked(places, tmp_path):
    thief = enroll(tmp_path / "thief", "site", "north")[0]
    with pytest.raises(InputError, match=r"north has certificates for other keys; revoke them first"):
        places.sign(thief)
    revoke(places.out, ["north"])
    (answer,) = places.sign(thief)
    assert install(answer, tmp_path / "thief").name == "north"
    with pytest.raises(InputError, match="a server with a new key needs a new authority"):
        places.sign(enroll(tmp_path / "other", "server", "center.example.org")[0])


def test_the_server_is_the_one_that_is_named(places, tmp_path):
    with pytest.raises(InputError, match=r"by server elsewhere\.example\.org"):
        places.sign(enroll(tmp_path / "s", "server", "elsewhere.example.org")[0])
    with pytest.raises(InputError, match="same name"):
        places.sign(*[next(places.own("north").glob("*.request"))] * 2)
    places.port = 9001
    with pytest.raises(InputError, match="same --server and --port"):
        places.sign(next(places.own("north").glob("*.request")))


def test_keys_made_in_one_place_and_keys_of_one_s_own_are_not_mixed(places, tmp_path):
    with pytest.raises(InputError, match="north made its keys itself"):
        provision(places.out, ["north"], server=places.server, port=places.port)
    made = provision(places.out, ["east"], server=places.server, port=places.port)
    assert set(made) == {"east"}
    state = places.authority / "workspace/coterie/state/cert.json"
    assert set(json.loads(state.read_text())) == {"root_cert", "root_pri_key", "east"}
    shutil.copytree(made["east"].folder, tmp_path / "east")
    with pytest.raises(InputError, match="is for a key made here"):
        places.sign(enroll(tmp_path / "east", "site", "east")[0])
    own = places.ask("site", "east")
    with pytest.raises(InputError, match="a private key made here"):
        places.sign(own)
    shutil.rmtree(made["east"].folder)
    places.sign(own)
    assert set(json.loads(state.read_text())) == {"root_cert", "root_pri_key"}
    assert {mode(path) for path in places.authority.rglob("*") if path.is_file()} == {0o600}


def test_renewal_keeps_keys_and_the_owner_s_settings(places):
    own = places.own("north")
    keys = {path: path.read_bytes() for path in own.rglob("*key") if path.is_file()}
    (own / "local" / "authorization.json").write_text("{}\n")
    (own / "coterie").mkdir()
    (own / "coterie" / "ledger.jsonl").write_text("kept")
    old = (own / "startup" / "client.crt").read_bytes(), (own / "startup" / "identity" / "certificate").read_bytes()
    install(*places.sign(next(own.glob("*.request"))), own)
    new = (own / "startup" / "client.crt").read_bytes(), (own / "startup" / "identity" / "certificate").read_bytes()
    assert old[0] != new[0]
    assert old[1] != new[1]
    assert keys == {path: path.read_bytes() for path in keys}
    assert (own / "local" / "authorization.json").read_text() == "{}\n"
    assert (own / "coterie" / "ledger.jsonl").read_text() == "kept"


def test_every_certificate_is_on_record_also_those_for_keys_made_here(tmp_path):
    made = provision(tmp_path, ["a"])
    file = revoke(tmp_path, ["a"])
    IdentityFiles(made["a"].folder).install_revoked(file)
    with pytest.raises(Untrusted, match="site a was revoked"):
        InstalledSite(made["a"].folder).identity("a")
    assert IdentityFiles(made["analyst@coterie.local"].folder).read("analyst", "analyst@coterie.local")
    revoke(tmp_path, ["analyst@coterie.local"])
    assert mode(tmp_path / "authority" / "issued.json") == 0o600


def test_an_authority_of_before_is_gone_on_with(tmp_path, monkeypatch):
    """Its root is valid as long as kits were then."""
    monkeypatch.setattr(tls, "ROOT_DAYS", 360)
    provision(tmp_path, ["a"])
    monkeypatch.undo()
    assert set(provision(tmp_path, ["b"])) >= {"a", "b"}
    assert own_request(enroll(tmp_path / "c", "site", "c")[0].parent).name == "c"
