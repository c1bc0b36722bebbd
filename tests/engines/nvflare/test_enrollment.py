"""Enrolment: private keys stay where they were made, and whatever comes from others is checked before it is used."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import stat
import zipfile
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie.engines.nvflare import handover, tls
from coterie.engines.nvflare.handover import install
from coterie.engines.nvflare.kits import Kit, provision, read_kit
from coterie.engines.nvflare.register import Register
from coterie.engines.nvflare.requests import enroll, own_request, read_request
from coterie.engines.nvflare.signing import revoke
from coterie.errors import InputError, Untrusted
from coterie.messages.identity import Authority, Revocations, kit_text, request_text, sign
from coterie.sites.identity_files import IdentityFiles, as_text, from_text
from coterie.sites.installed import InstalledSite

from .enrolled import Places

pytest.importorskip("nvflare")

ANA = "ana@university.example"
PRIVATE = re.compile(rb"PRIVATE KEY")
FEW = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def unpacked(file):
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(file, entries, **extra):
    with zipfile.ZipFile(file, "w") as archive:
        for name, raw in entries.items():
            archive.writestr(name, raw)
        for entry, raw in extra.get("special", ()):
            archive.writestr(entry, raw)
    return file


def signed_anew(entries, authority, role="site", name="north"):
    """The entries as an authority would sign them."""
    rest = {entry: raw for entry, raw in entries.items() if entry != "signature"}
    return {**rest, "signature": sign(authority.key, kit_text(role, name, handover._digest(rest)))}


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """A server, a site and an analyst that enrolled, and the kits that they got."""
    places = Places(tmp_path_factory.mktemp("places"), "center.example.org", 9000)
    asked = [places.ask("server", "center.example.org"), places.ask("site", "north"), places.ask("analyst", ANA)]
    for answer, name in zip(places.sign(*asked), places.roles, strict=True):
        install(answer, places.own(name))
    return places


@pytest.fixture
def places(joined, tmp_path):
    """The same, to be changed."""
    shutil.copytree(joined.folder, tmp_path / "all")
    return Places(tmp_path / "all", joined.server, joined.port, dict(joined.roles))


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


def test_a_kit_for_another_name_or_key_is_not_installed(places, tmp_path):
    before = {path: path.read_bytes() for path in places.own("north").rglob("*") if path.is_file()}
    for file in (places.out / "analysts" / f"{ANA}.kit", places.out / "server.kit"):
        with pytest.raises(InputError, match="did not sign this kit for site north"):
            install(file, places.own("north"))
    enroll(tmp_path / "thief", "site", "north")
    with pytest.raises(InputError, match="for another key than the one in this folder"):
        install(places.out / "sites" / "north.kit", tmp_path / "thief")
    shutil.copy2(places.own("north") / "startup" / "client.key", tmp_path / "thief" / "startup" / "client.key")
    with pytest.raises(InputError, match="for another signing key than the one in this folder"):
        install(places.out / "sites" / "north.kit", tmp_path / "thief")
    assert not (tmp_path / "thief" / "startup" / "client.crt").exists()
    with pytest.raises(InputError, match="no request was made"):
        install(places.out / "sites" / "north.kit", tmp_path / "nowhere")
    assert before == {path: path.read_bytes() for path in places.own("north").rglob("*") if path.is_file()}


def test_a_kit_that_ended_is_not_installed(places, monkeypatch):
    file = places.out / "sites" / "north.kit"
    with monkeypatch.context() as patch:
        patch.setattr(Kit, "valid_until", lambda _: datetime.now(UTC) - timedelta(1))
        with pytest.raises(InputError, match="ended on"):
            install(file, places.own("north"))
    monkeypatch.setattr("coterie.messages.identity.time.time", lambda: datetime.now(UTC).timestamp() + 361 * 86400)
    with pytest.raises(InputError, match="not valid today"):
        install(file, places.own("north"))


def test_a_kit_that_was_changed_is_not_installed(places):
    file = places.out / "sites" / "north.kit"
    entries = unpacked(file)
    for name in entries:
        for changed in ({**entries, name: entries[name] + b"x"}, {k: v for k, v in entries.items() if k != name}):
            packed(file, changed)
            with pytest.raises(InputError, match=r"north\.kit"):
                install(file, places.own("north"))


def test_another_authority_is_noticed(places, tmp_path):
    other = Places(tmp_path / "other", places.server, places.port)
    (answer,) = other.sign(next(places.own("north").glob("*.request")))
    with pytest.raises(InputError, match="by another authority"):
        install(answer, places.own("north"))
    (places.own("north") / "startup" / "identity" / "authority").unlink()
    assert install(answer, places.own("north")).name == "north"


@pytest.mark.parametrize(
    "name",
    [
        "startup/client.key", "startup/identity/key", "local/coterie.json", "coterie/ledger.jsonl", "/etc/passwd",
        "../x", "startup/../../x", "startup/../x.json", "local/custom/code.py", "x.json", "startup\\x", "",
    ],
)  # fmt: skip
def test_what_a_kit_never_brings_is_refused_whoever_signed_it(places, name):
    authority = Register(places.authority).authority
    file = places.out / "sites" / "north.kit"
    before = {path: path.read_bytes() for path in places.folder.rglob("*") if path.is_file() and path != file}
    packed(file, signed_anew({**unpacked(file), name: b"x"}, authority))
    with pytest.raises(InputError, match="has no file"):
        install(file, places.own("north"))
    assert before == {path: path.read_bytes() for path in places.folder.rglob("*") if path.is_file() and path != file}


def test_links_folders_doubles_and_bombs_are_refused(places):
    file = places.out / "sites" / "north.kit"
    entries = unpacked(file)
    link, folder = zipfile.ZipInfo("startup/link.json"), zipfile.ZipInfo("startup/folder/")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    for special in (link, folder):
        packed(file, entries, special=[(special, b"/etc/passwd")])
        with pytest.raises(InputError, match="regular files only"):
            install(file, places.own("north"))
    with pytest.warns(UserWarning, match="Duplicate"):
        packed(file, entries, special=[("readme.txt", b"twice")])
    with pytest.raises(InputError, match="each once"):
        install(file, places.own("north"))
    for more in ({f"local/a{i}.json": b"" for i in range(100)}, {"local/a.json": bytes(5 << 20)}):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, raw in more.items():
                archive.writestr(name, raw)
        with pytest.raises(InputError, match="more than a kit has"):
            install(file, places.own("north"))
    file.write_bytes(bytes(2 << 20))
    with pytest.raises(InputError, match="larger than"):
        install(file, places.own("north"))


def test_an_authority_that_signs_nonsense_gets_one_sentence(places):
    authority, file = Authority(), places.out / "sites" / "north.kit"
    (places.own("north") / "startup" / "identity" / "authority").unlink()
    entries = unpacked(file) | {"startup/identity/authority": as_text(authority.public).encode()}
    nonsense = (b"", b"[]", b'{"servers": 1}', b'{"servers": [{"service": {"target": 5}}]}', b"\xff\xfe", b"x" * 200)
    for name in (entry for entry in entries if entry.startswith("startup/")):
        if name.endswith(("authority", ".sh")):
            continue
        for raw in nonsense:
            packed(file, signed_anew({**entries, name: raw}, authority))
            with pytest.raises(InputError, match=r"north\.kit"):
                install(file, places.own("north"))


def test_a_revoked_site_does_not_start_and_others_refuse_it(places):
    places.join("site", "south")
    file = revoke(places.out, ["north"])
    assert Revocations.from_bytes(from_text(file.read_bytes())).number == 1
    for name in ("north", "south"):
        IdentityFiles(places.own(name)).install_revoked(file)
    with pytest.raises(Untrusted, match="site north was revoked"):
        InstalledSite(places.own("north")).identity("north")
    trust = InstalledSite(places.own("south")).identity("south").trust
    certificate = from_text((places.own("north") / "startup/identity/certificate").read_bytes())
    assert certificate[32:40] in trust.revoked.serials


def test_a_list_is_newer_than_the_last_and_by_the_same_authority(places, tmp_path):
    files = IdentityFiles(places.own("north"))
    first = revoke(places.out, [ANA]).read_bytes()
    old, new = tmp_path / "old", revoke(places.out, [ANA])
    old.write_bytes(first)
    assert files.install_revoked(new).number == 2
    assert files.install_revoked(new).number == 2
    with pytest.raises(InputError, match="list 1 is older than list 2"):
        files.install_revoked(old)
    for raw in (Authority().revoke([bytes(8)], 9).to_bytes(), Authority().revoke([], 0).to_bytes()):
        old.write_text(as_text(raw))
        with pytest.raises(InputError, match="no list of revoked"):
            files.install_revoked(old)
    with pytest.raises(InputError, match="named 'nobody'"):
        revoke(places.out, ["nobody"])
    with pytest.raises(InputError, match="holds no authority"):
        revoke(tmp_path, ["north"])


def test_a_new_kit_brings_the_newest_list_and_never_an_older_one(places):
    own = places.own("north")
    (early,) = places.sign(next(own.glob("*.request")))
    kept = early.read_bytes()
    file = revoke(places.out, [ANA])
    assert places.join("site", "south").name == "south"
    assert InstalledSite(places.own("south")).identity("south").trust.revoked.number == 1
    IdentityFiles(own).install_revoked(file)
    early.write_bytes(kept)
    install(early, own)
    assert InstalledSite(own).identity("north").trust.revoked.number == 1


def test_every_certificate_is_on_record_also_those_for_keys_made_here(tmp_path):
    made = provision(tmp_path, ["a"])
    file = revoke(tmp_path, ["a"])
    IdentityFiles(made["a"].folder).install_revoked(file)
    with pytest.raises(Untrusted, match="site a was revoked"):
        InstalledSite(made["a"].folder).identity("a")
    assert IdentityFiles(made["analyst@coterie.local"].folder).read("analyst", "analyst@coterie.local")
    revoke(tmp_path, ["analyst@coterie.local"])
    assert mode(tmp_path / "authority" / "issued.json") == 0o600


def mutated(raw):
    """The same bytes with some changed, dropped or added."""
    spot = st.integers(0, len(raw) - 1)
    change = st.tuples(spot, st.integers(0, 40), st.binary(max_size=40))
    return st.lists(change, min_size=1, max_size=4).map(lambda changes: _changed(raw, changes))


def _changed(raw, changes):
    for start, length, new in changes:
        raw = raw[:start] + new + raw[start + length :]
    return raw


@FEW
@given(st.data())
def test_whatever_is_in_a_file_from_others_there_is_one_sentence(joined, tmp_path_factory, data):
    kept = joined.folder / "revoked-once"
    if not kept.exists():
        kept.write_text(as_text(Register(joined.authority).authority.revoke([bytes(8)] * 3, 3).to_bytes()))
    folder = joined.own("north")
    readers = {
        next(folder.glob("*.request")): read_request,
        joined.out / "sites" / "north.kit": lambda file: install(file, folder),
        kept: IdentityFiles(folder).install_revoked,
    }
    path = data.draw(st.sampled_from(list(readers)))
    raw = data.draw(st.one_of(mutated(path.read_bytes()), st.binary(max_size=300)))
    file = tmp_path_factory.getbasetemp() / "mutated"
    file.write_bytes(raw)
    before = hashlib.sha256((folder / "startup" / "client.key").read_bytes()).digest()
    try:
        readers[path](file)
    except InputError as problem:
        assert str(file) in str(problem)
        assert "\n" not in str(problem)
    assert hashlib.sha256((folder / "startup" / "client.key").read_bytes()).digest() == before
    (folder / "startup" / "identity" / "revoked").unlink(missing_ok=True)


def test_a_zip_whose_parts_lie_about_their_size_is_one_sentence(places):
    file = places.out / "sites" / "north.kit"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("readme.txt", b"x" * 1000)
    for raw in (out.getvalue().replace((1000).to_bytes(4, "little"), (10).to_bytes(4, "little")), b"PK\x05\x06", b""):
        file.write_bytes(raw)
        with pytest.raises(InputError, match=r"north\.kit"):
            install(file, places.own("north"))


def test_an_authority_of_before_is_gone_on_with(tmp_path, monkeypatch):
    """Its root is valid as long as kits were then."""
    monkeypatch.setattr(tls, "ROOT_DAYS", 360)
    provision(tmp_path, ["a"])
    monkeypatch.undo()
    assert set(provision(tmp_path, ["b"])) >= {"a", "b"}
    assert own_request(enroll(tmp_path / "c", "site", "c")[0].parent).name == "c"
