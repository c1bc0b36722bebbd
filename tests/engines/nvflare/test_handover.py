"""Kits and lists that come from others: checked before anything of them is used."""

from __future__ import annotations

import hashlib
import io
import shutil
import stat
import zipfile
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie.engines.nvflare import handover
from coterie.engines.nvflare.handover import install
from coterie.engines.nvflare.kits import Kit
from coterie.engines.nvflare.register import Register
from coterie.engines.nvflare.requests import enroll, read_request
from coterie.engines.nvflare.signing import revoke
from coterie.errors import InputError, Untrusted
from coterie.messages.identity import Authority, Revocations, kit_text, sign
from coterie.sites.identity_files import IdentityFiles, as_text, from_text
from coterie.sites.installed import InstalledSite

from .enrolled import ANA, Places, unpacked

pytest.importorskip("nvflare")

FEW = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


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
        "../x", "startup/../../x", "startup/../x.json", "local/custom/code.py", "x.json", "startup\\x",
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


def mutated(raw):
    """The same bytes with some changed, dropped or added."""
    spot = st.integers(0, len(raw) - 1)
    change = st.tuples(spot, st.integers(0, 40), st.binary(max_size=40))
    return st.lists(change, min_size=1, max_size=4).map(lambda changes: _changed(raw, changes))


def _changed(raw, changes):
    for start, length, new in changes:
        raw = raw[:start] + new + raw[start + length :]
    return raw


def sentence(read, file):
    """What a reader says against a file, if anything."""
    try:
        read(file)
    except InputError as problem:
        return str(problem)
    return None


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
    said = sentence(readers[path], file)
    assert said is None or (str(file) in said and "\n" not in said)
    assert hashlib.sha256((folder / "startup" / "client.key").read_bytes()).digest() == before
    (folder / "startup" / "identity" / "revoked").unlink(missing_ok=True)


def test_a_zip_whose_parts_lie_about_their_size_is_one_sentence(places):
    file = places.out / "sites" / "north.kit"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme.txt", b"x" * 1000)
    for raw in (out.getvalue().replace((1000).to_bytes(4, "little"), (10).to_bytes(4, "little")), b"PK\x05\x06", b""):
        file.write_bytes(raw)
        with pytest.raises(InputError, match=r"north\.kit"):
            install(file, places.own("north"))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_kit_is_packed_as_coterie_packs_it(places, method):
    file = places.out / "sites" / "north.kit"
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("readme.txt", b"x" * 1000)
    damaged = bytearray(file.read_bytes())
    damaged[60:80] = bytes(20)
    for raw in (file.read_bytes(), bytes(damaged)):
        file.write_bytes(raw)
        with pytest.raises(InputError, match=r"north\.kit"):
            install(file, places.own("north"))
