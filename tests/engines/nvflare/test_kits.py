"""Start-up kits: who gets one, what they forbid, and how sites are added later."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from coterie.engines.nvflare.kits import CENTER_CLASS, SITE_CLASS, Kit, place_server, provision, read_kit
from coterie.engines.nvflare.processes import command, environment, find_running
from coterie.engines.nvflare.session import Session, write_job
from coterie.errors import InputError

pytest.importorskip("nvflare")


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    return provision(tmp_path_factory.mktemp("kits"), ["north", "south-2"], server="center.example.org", port=9000)


def test_everyone_gets_a_kit_with_the_servers_address(kits):
    assert {(kit.kind, name) for name, kit in kits.items()} == {
        ("server", "server"),
        ("site", "north"),
        ("site", "south-2"),
        ("analyst", "analyst@coterie.local"),
    }
    assert {(kit.host, kit.port) for kit in kits.values()} == {("center.example.org", 9000)}
    assert all(read_kit(kit.folder) == kit for kit in kits.values())


def test_nobody_may_bring_code_or_run_commands(kits):
    for kit in kits.values():
        if kit.kind == "analyst":
            continue
        rights = json.loads((kit.folder / "local" / "authorization.json").read_text())["permissions"]
        assert set(rights) == {"project_admin", "org_admin", "lead", "member"}
        for role in rights.values():
            assert {role[x] for x in ("byoc", "shell_commands", "clone_job", "server-predeployed-flwr")} == {"none"}


def test_a_site_and_a_server_load_one_class_each_and_stream_no_log(kits):
    for name, allowed in (("north", SITE_CLASS), ("server", CENTER_CLASS)):
        resources = json.loads((kits[name].folder / "local" / "resources.json").read_text())
        assert resources["class_allow_list"] == [allowed]
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert not {one["id"] for one in resources["components"]} & {"site_log_streamer", "log_receiver"}
    assert json.loads((kits["north"].folder / "local" / "resources.json").read_text())["allow_log_streaming"] is False


def test_private_keys_are_for_their_owner_alone(kits):
    keys = [key for kit in kits.values() for key in kit.folder.rglob("*.key")]
    assert len(keys) == 4
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    authority = kits["server"].folder.parent / "authority"
    assert stat.S_IMODE(authority.stat().st_mode) == 0o700
    assert not [path for path in authority.rglob("*") if path.stat().st_mode & 0o077]


def test_certificates_name_their_owners(kits):
    for name in ("north", "south-2"):
        data = (kits[name].folder / "startup" / "client.crt").read_bytes()
        subject = x509.load_pem_x509_certificate(data).subject
        assert [part.value for part in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [name]


def test_a_site_is_added_later_under_the_same_authority(tmp_path):
    first = provision(tmp_path, ["a"], port=9001)
    root = (first["a"].folder / "startup" / "rootCA.pem").read_bytes()
    key = (first["a"].folder / "startup" / "client.key").read_bytes()
    second = provision(tmp_path, ["b"], port=9001)
    assert set(second) == {"server", "a", "b", "analyst@coterie.local"}
    assert (second["b"].folder / "startup" / "rootCA.pem").read_bytes() == root
    assert (second["a"].folder / "startup" / "client.key").read_bytes() == key
    with pytest.raises(InputError, match="server at localhost:9001"):
        provision(tmp_path, ["c"], port=9002)


def test_the_servers_files_lie_where_its_kit_lies(tmp_path):
    kit = provision(tmp_path / "here", ["a"])["server"]
    kit.folder.rename(tmp_path / "elsewhere")
    moved = read_kit(tmp_path / "elsewhere")
    place_server(moved)
    text = (moved.folder / "local" / "resources.json").read_text()
    assert "/tmp/nvflare" not in text
    assert text.count(str(tmp_path / "elsewhere" / "store")) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sites": []}, "no site"),
        ({"sites": ["a", "a"]}, "named twice"),
        ({"sites": ["a b"]}, "'a b'"),
        ({"sites": ["../x"]}, "letters, digits"),
        ({"sites": ["server"]}, "not the server's"),
        ({"sites": ["a"], "server": "no host"}, "host name"),
        ({"sites": ["a"], "port": 70000}, "1 to 65535"),
        ({"sites": ["a"], "analysts": ["ana"]}, "e-mail"),
    ],
)
def test_what_cannot_be_named_so_is_refused_before_anything_is_made(tmp_path, options, words):
    with pytest.raises(InputError, match=words):
        provision(tmp_path / "kits", **options)
    assert not (tmp_path / "kits").exists()


def test_a_folder_that_is_no_kit_is_said_to_be_none(tmp_path, kits):
    with pytest.raises(InputError, match="no start-up kit"):
        read_kit(tmp_path)
    with pytest.raises(InputError, match="kit of a site"):
        Session(kits["north"])
    with pytest.raises(InputError, match="kit of an analyst"):
        command(kits["analyst@coterie.local"])
    assert find_running(kits["north"]) is None


def test_numerical_libraries_get_one_thread_as_in_one_process():
    assert environment()["OMP_NUM_THREADS"] == "1"


def test_a_job_holds_configuration_and_no_code(tmp_path):
    job = write_job(tmp_path / "job", "job", {"method": "lloyd"}, least=2)
    assert sorted(str(path.relative_to(job)) for path in job.rglob("*") if path.is_file()) == [
        "app/config/config_fed_client.json",
        "app/config/config_fed_server.json",
        "meta.json",
    ]
    site = json.loads((job / "app" / "config" / "config_fed_client.json").read_text())
    assert site["executors"] == [{"tasks": ["*"], "executor": {"path": SITE_CLASS, "args": {}}}]


def test_a_site_that_is_added_brings_no_analyst(tmp_path):
    provision(tmp_path, ["a"], analysts=["ana@university.example"])
    provision(tmp_path, ["b"])
    assert [path.name for path in (tmp_path / "analysts").iterdir()] == ["ana@university.example"]


def test_certificates_are_valid_for_most_of_a_year_and_not_after(tmp_path, monkeypatch):
    made = provision(tmp_path, ["a"])
    left = made["a"].valid_until() - datetime.now(UTC)
    assert timedelta(359) < left <= timedelta(360)
    assert all(kit.valid_until() - made["a"].valid_until() < timedelta(minutes=1) for kit in made.values())
    monkeypatch.setattr(Kit, "valid_until", lambda _: datetime.now(UTC) - timedelta(1))
    with pytest.raises(InputError, match="ended on"):
        made["a"].check()
    with pytest.raises(InputError, match="ended on"):
        Session(made["analyst@coterie.local"])
