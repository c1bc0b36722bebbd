"""The command line as a person meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coterie.cli import main, terminal
from coterie.messages.chain import read_chain
from tests.federations import blobs

COTERIE = Path(sys.executable).parent / "coterie"


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    """Run a command in this process, in a folder of its own; returns its code, output and error output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(terminal.console, "_width", 200)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["coterie", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def write_csv(path, rows, names=("a", "b", "c")):
    lines = [
        ",".join(names),
        *(",".join(f"{v:.6f}" if isinstance(v, float) else str(v) for v in row) for row in rows),
    ]
    Path(path).write_text("\n".join(lines) + "\n")


@pytest.fixture
def three(tmp_path):
    """Three sites' files."""
    rows = blobs(150, 3, 3, seed=7)
    for name, part in zip(("north", "south", "west"), np.array_split(rows, 3), strict=True):
        write_csv(tmp_path / f"{name}.csv", part.tolist())
    return rows


FILES = ("north.csv", "south.csv", "west.csv")


def test_cluster_leaves_everything_a_person_or_a_program_needs(cli, three, tmp_path):
    code, out, err = cli("cluster", *FILES, "-k", 3, "--out", "run")
    assert code == 0, err
    assert "3 clusters over 3 sites" in out
    assert "report.html" in out
    run = tmp_path / "run"
    names = {p.name for p in run.iterdir()}
    assert names >= {"result.json", "centers.csv", "labels", "ledger.jsonl", "ledger.json", "journal", "clusters.png"}
    result = json.loads((run / "result.json").read_text())
    assert result["schema"] == 1
    assert result["bytes_up"] == json.loads((run / "ledger.json").read_text())["total"]["bytes_up"]
    labels = [
        pq.read_table(run / "labels" / f"{n}.parquet")["cluster"].to_numpy() for n in ("north", "south", "west")
    ]
    assert [len(x) for x in labels] == [50, 50, 50]
    np.testing.assert_array_equal(np.bincount(np.concatenate(labels)), result["counts"])
    assert "http" not in (run / "report.html").read_text()


def test_json_is_all_that_is_printed(cli, three):
    code, out, err = cli("cluster", *FILES, "-k", 2, "--json", "--method", "lloyd")
    assert code == 0
    assert err == ""
    assert json.loads(out)["method"] == "lloyd"


@pytest.mark.parametrize("method", ["federated-kmeans", "lloyd", "one-shot"])
def test_every_method_clusters_files(cli, three, method):
    code, out, _ = cli("cluster", *FILES, "-k", 3, "--method", method, "--scale", "standard", "--json")
    assert code == 0
    result = json.loads(out)
    assert result["counts"] == sorted(result["counts"], key=result["counts"].index)
    assert sum(result["counts"]) == 150


def test_one_file_with_a_site_column_is_the_same_as_one_file_a_site(cli, three, tmp_path):
    parts = [
        (name, np.loadtxt(tmp_path / f"{name}.csv", delimiter=",", skiprows=1)) for name in ("north", "south", "west")
    ]
    rows = [(*row, name) for name, part in parts for row in part.tolist()]
    write_csv("all.csv", rows, ("a", "b", "c", "place"))
    one = json.loads(cli("cluster", "all.csv", "--site-column", "place", "-k", 3, "--out", "one", "--json")[1])
    many = json.loads(cli("cluster", *FILES, "-k", 3, "--out", "many", "--json")[1])
    assert one["centers"] == many["centers"]
    assert one["bytes_up"] == many["bytes_up"]


def test_run_reads_a_file_and_names_the_nearest_key(cli, three, tmp_path):
    job = tmp_path / "job.toml"
    job.write_text('data = ["north.csv", "south.csv", "west.csv"]\nclusters = 3\nscale = "standard"\nout = "there"\n')
    code, _, err = cli("run", job)
    assert code == 0, err
    assert (tmp_path / "there" / "result.json").exists()
    job.write_text('data = ["north.csv"]\nclutsers = 3\n')
    code, _, err = cli("run", job)
    assert code == 2
    assert "there is no key 'clutsers'; did you mean 'clusters'?" in err
    job.write_text('data = ["north.csv"]\nclusters = "three"\n')
    assert "clusters = 'three' is not of the kind expected (int)" in cli("run", job)[2]
    job.write_text('data = ["north.csv"]\nclusters = 3\n[settings]\nepoch = 2\n')
    assert "has no parameter 'epoch'; did you mean 'epochs'?" in cli("run", job)[2]
    job.write_text("clusters = 3\n")
    assert "data is missing" in cli("run", job)[2]
    job.write_text("clusters = = 3\n")
    assert "not a TOML file" in cli("run", job)[2]


def test_assign_labels_new_rows_as_the_run_did(cli, three, tmp_path):
    cli("cluster", *FILES, "-k", 3, "--scale", "standard", "--out", "run")
    code, out, err = cli("assign", "run/model.json", "south.csv", "--out", "new.parquet")
    assert code == 0, err
    new = pq.read_table("new.parquet")["cluster"]
    assert new.equals(pq.read_table("run/labels/south.parquet")["cluster"])
    write_csv("short.csv", [(1.0, 2.0)], ("a", "b"))
    code, _, err = cli("assign", "run/model.json", "short.csv")
    assert code == 2
    assert "'c'" in err
    assert not list(tmp_path.glob("short.csv.*"))


def test_models_of_other_formats_are_refused_clearly(cli, three, tmp_path):
    cli("cluster", *FILES, "-k", 2, "--out", "run")
    model = tmp_path / "run" / "model.json"
    whole = json.loads(model.read_text())
    for change, told in (
        ({"schema": 9}, "model format 9 is not known"),
        ({"kind": "recipe"}, "not a model file of coterie"),
        ({"centers": [[1.0]]}, "the model file is damaged"),
        ({"centers": "none"}, "the model file is damaged"),
    ):
        model.write_text(json.dumps({**whole, **change}))
        code, _, err = cli("assign", model, "north.csv")
        assert code == 2
        assert told in err
    model.write_text("not JSON")
    assert "not a model file" in cli("assign", model, "north.csv")[2]
    assert "no such file" in cli("assign", "nowhere.json", "north.csv")[2]


def test_preview_shows_what_would_be_sent_and_sends_nothing(cli, three, tmp_path):
    before = set(tmp_path.iterdir())
    code, out, _ = cli("site", "preview", "north.csv", "-k", 3)
    assert code == 0
    assert "LocalCenters" in out
    assert "Nothing was sent" in out
    assert set(tmp_path.iterdir()) == before
    answers = json.loads(cli("site", "preview", "north.csv", "-k", 3, "--method", "lloyd", "--json")[1])
    assert [a["answer"] for a in answers] == ["ColumnReport", "ColumnSums", "CellSums", "Moments"]


def test_ledgers_are_shown_and_verified(cli, three, tmp_path):
    cli("cluster", *FILES, "-k", 3, "--out", "run")
    code, out, _ = cli("ledger", "verify", "run")
    assert code == 0
    assert "The books of 3 sites add up" in out
    assert "LocalCenters" in cli("ledger", "show", "run")[1]
    shown = cli("ledger", "show", "run/journal/sites/west.jsonl")[1]
    assert "What left this site" in shown
    assert "averages" in shown
    path = tmp_path / "run" / "ledger.jsonl"
    path.write_text(path.read_text().replace('"round":2,', '"round":9,'))
    code, _, err = cli("ledger", "verify", "run")
    assert code == 4
    assert "line 3 was changed" in err
    assert cli("ledger", "show", "nowhere")[0] == 2


def test_a_site_that_wrote_down_less_than_the_server_received_is_named(cli, three, tmp_path):
    cli("cluster", *FILES, "-k", 3, "--out", "run")
    other = cli("cluster", "north.csv", "south.csv", "-k", 2, "--out", "other")
    assert other[0] == 0
    for end in (".jsonl", ".jsonl.head"):
        (tmp_path / "other/journal/sites" / f"north{end}").replace(tmp_path / "run/journal/sites" / f"north{end}")
    code, _, err = cli("ledger", "verify", "run")
    assert code == 4
    assert "north wrote down 0 bytes" in err


def test_policies_are_written_checked_and_explained(cli, tmp_path):
    assert cli("policy", "init", "site.toml")[0] == 0
    assert cli("policy", "check", "site.toml")[0] == 0
    assert "sums, counts and averages" in cli("policy", "explain", "site.toml")[1]
    code, _, err = cli("policy", "init", "site.toml")
    assert (code, "already there" in err) == (2, True)
    for text, told in (
        ("min_row = 3", "did you mean 'min_rows'?"),
        ('single_answers = "all"', "single_answers is none, averages or rows"),
        ('methods = ["kmeans"]', "there is no method 'kmeans'"),
        ("min_rows = -1", "min_rows is a whole number, at least 0"),
        ("min_rows = true", "min_rows is a whole number"),
        ("= 3", "not a TOML file"),
    ):
        Path("bad.toml").write_text(text)
        code, _, err = cli("policy", "check", "bad.toml")
        assert code == 2
        assert told in err


def test_methods_and_audits(cli):
    code, out, _ = cli("methods")
    assert code == 0
    assert "federated-kmeans" in out
    assert {m["name"] for m in json.loads(cli("methods", "--json")[1])} == {"lloyd", "federated-kmeans", "one-shot"}
    assert "LocalCenters.centers" in cli("audit", "one-shot")[1]
    code, _, err = cli("audit", "one-shots")
    assert code == 2
    assert "did you mean 'one-shot'?" in err


# ---------------------------------------------------------------- bad input


def cut_parquet(path):
    pq.write_table(pa.table({"a": np.arange(100.0)}), path)
    path.write_bytes(path.read_bytes()[:200])


BAD = {
    "an empty file": (lambda: Path("bad.csv").write_bytes(b""), "bad.csv", "empty"),
    "a file that is not there": (lambda: None, "nowhere.csv", "no such file"),
    "a directory": (lambda: Path("bad.csv").mkdir(), "bad.csv", "folder|director"),
    "a zero-byte Parquet": (lambda: Path("bad.parquet").write_bytes(b""), "bad.parquet", "empty|not a readable"),
    "a Parquet cut short": (lambda: cut_parquet(Path("bad.parquet")), "bad.parquet", "not a readable"),
    "an unknown ending": (lambda: Path("bad.xyz").write_text("a\n1\n"), "bad.xyz", "xyz"),
    "a text column": (lambda: write_csv("bad.csv", [("x", 1.0, 2.0)]), "bad.csv", "column 'a' holds text"),
    "stray text": (lambda: write_csv("bad.csv", [(1.0, 2.0, 3.0), (1.0, "n/a?", 3.0)]), "bad.csv", "'b'"),
    "a missing value": (
        lambda: write_csv("bad.csv", [(1.0, "", 3.0)] * 4),
        "bad.csv",
        "holds 4 missing values; pass --missing",
    ),
    "an infinite value": (lambda: write_csv("bad.csv", [(1.0, "inf", 3.0)]), "bad.csv", "infinite"),
    "a doubled column": (lambda: write_csv("bad.csv", [(1.0, 2.0, 3.0)], ("a", "a", "c")), "bad.csv", "'a'"),
    "another order": (
        lambda: write_csv("bad.csv", [(1.0, 2.0, 3.0)], ("a", "c", "b")),
        "bad.csv",
        "in another place",
    ),
    "a missing column": (lambda: write_csv("bad.csv", [(1.0, 2.0)], ("a", "b")), "bad.csv", "column 'c' is missing"),
    "one column more": (lambda: write_csv("bad.csv", [(1.0,) * 4], ("a", "b", "c", "d")), "bad.csv", "1 column more"),
    "a huge integer": (lambda: write_csv("bad.csv", [(2**70, 1.0, 2.0)]), "bad.csv", "'a'"),
    "ragged rows": (lambda: Path("bad.csv").write_text("a,b,c\n1,2\n3,4,5\n"), "bad.csv", "bad.csv"),
    "binary rubbish": (lambda: Path("bad.csv").write_bytes(bytes(range(256)) * 20), "bad.csv", "bad.csv"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_in_one_clear_sentence_and_nothing_half_written(cli, three, tmp_path, name):
    import re

    make, path, told = BAD[name]
    make()
    before = sorted(p.name for p in tmp_path.iterdir())
    code, out, err = cli("cluster", "north.csv", path, "-k", 2, "--out", "run")
    assert code == 2, err
    assert err.count("error:") == 1
    assert len(err.strip().splitlines()[-1]) < 400
    assert re.search(told, err), err
    assert "Traceback" not in err + out
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_small_and_odd_tables_work_or_say_why(cli, tmp_path):
    write_csv("one.csv", [(1.0, 2.0, 3.0)])
    write_csv("none.csv", [])
    write_csv("flat.csv", [(1.0, 5.0, float(i)) for i in range(9)])
    code, _, err = cli("cluster", "one.csv", "-k", 2, "--out", "a")
    assert code == 2
    assert "the sites hold 1 rows in all; n_clusters=2 needs at least as many" in err
    assert not (tmp_path / "a").exists()
    assert cli("cluster", "one.csv", "-k", 1, "--out", "b")[0] == 0
    assert cli("cluster", "flat.csv", "one.csv", "-k", 3, "--scale", "standard", "--out", "c")[0] == 0
    code, _, err = cli("cluster", "none.csv", "-k", 1, "--out", "d")
    assert code == 2
    assert "hold 0 rows" in err
    assert cli("cluster", "none.csv", "flat.csv", "-k", 2, "--out", "e")[0] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-k", "2", "--method", "kmeans"], "there is no method 'kmeans'"),
        (["-k", "2", "--scale", "log"], "scale='log'; it is one of none, standard, minmax"),
        (["-k", "2", "--scale", "minmax"], "needs a declared range for every column"),
        (["-k", "2", "--missing", "guess"], "missing='guess'"),
        (["-k", "2", "--columns", "a,z"], "'z'"),
        (["-k", "2", "--categories", "a"], "column=first,second"),
        (["-k", "2", "--site-column", "a", "south.csv"], "a site column goes with one file"),
        (["-k", "2", "sub/north.csv"], "would both be site 'north'"),
        (["-k", "2", "--resume"], "holds no run to resume"),
        (["-k", "2", "--out", "south.csv"], "--out names a folder"),
    ],
)
def test_options_that_cannot_be_are_named(cli, three, tmp_path, words, told):
    code, _, err = cli("cluster", "north.csv", *words)
    assert code == 2
    assert told in err
    assert not (tmp_path / "coterie-run").exists()


def test_a_finished_run_is_not_overwritten(cli, three):
    assert cli("cluster", *FILES, "-k", 2, "--out", "run")[0] == 0
    code, _, err = cli("cluster", *FILES, "-k", 2, "--out", "run")
    assert code == 2
    assert "already holds a finished run" in err


def test_ctrl_c_leaves_a_journal_that_resumes_to_the_same_result(cli, three, tmp_path, monkeypatch):
    from coterie.runtime.run import Run

    whole = json.loads(cli("cluster", *FILES, "-k", 3, "--out", "whole", "--json")[1])
    original = Run.gather

    def interrupted(self, question):
        if self.round == 4:
            raise KeyboardInterrupt
        return original(self, question)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "gather", interrupted)
        code, _, err = cli("cluster", *FILES, "-k", 3, "--out", "cut")
    assert code == 130
    assert "--resume" in err
    code, _, err = cli("cluster", *FILES, "-k", 3, "--out", "cut")
    assert code == 2
    assert "pass --resume" in err
    code, _, err = cli("cluster", *FILES, "-k", 4, "--out", "cut", "--resume")
    assert code == 2
    assert "settings" in err
    code, out, err = cli("cluster", *FILES, "-k", 3, "--out", "cut", "--resume", "--json")
    assert code == 0, err
    assert json.loads(out)["centers"] == whole["centers"]


# ---------------------------------------------------------------- the installed command


def coterie(*words, **options):
    return subprocess.run([COTERIE, *map(str, words)], capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "out"
    return coterie("demo", "--out", folder), folder


def test_the_demonstration_prints_a_table_and_leaves_a_page(shown):
    done, folder = shown
    assert done.returncode == 0, done.stderr
    assert "report.html" in done.stdout
    page = (folder / "report.html").read_text()
    assert "data:image/png;base64" in page
    assert "http" not in page  # the page asks nobody for anything
    result = json.loads((folder / "result.json").read_text())
    assert result["comparisons"][0]["cost_ratio"] < 1.01
    assert (folder / "clusters.png").stat().st_size > 10_000


def test_the_demonstrations_books_hold_and_add_up(shown):
    _, folder = shown
    total = json.loads((folder / "ledger.json").read_text())["total"]["bytes_up"]
    islands = [read_chain(folder / "journal/sites" / f"{name}.jsonl") for name in ("Biscoe", "Dream", "Torgersen")]
    assert sum(line["bytes"] for lines in islands for line in lines) == total


def test_the_demonstration_can_be_run_again_in_the_same_folder(shown):
    _, folder = shown
    before = json.loads((folder / "result.json").read_text())
    assert coterie("demo", "--out", folder).returncode == 0
    assert json.loads((folder / "result.json").read_text()) == before


def test_help_and_version_and_a_wrong_word():
    assert "reproduce" in coterie("--help").stdout
    assert coterie("version").stdout.strip()
    wrong = coterie("demo", "--clusters", "many")
    assert wrong.returncode == 2
    assert "--clusters" in wrong.stderr


def test_a_real_interrupt_of_a_real_process(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60_000, 8))
    for name in ("a", "b"):
        pq.write_table(pa.table({f"x{i}": rows[:, i] for i in range(8)}), tmp_path / f"{name}.parquet")
    words = ["cluster", "a.parquet", "b.parquet", "-k", "40", "--out", "run", "--seed", "1"]
    process = subprocess.Popen([COTERIE, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ})
    journal = tmp_path / "run" / "journal" / "records.bin"
    for _ in range(600):
        if journal.exists() and journal.stat().st_size > 20_000:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("the run was over before it could be interrupted")
    assert process.returncode == 130
    assert "--resume" in told
    assert coterie(*words, "--resume", cwd=tmp_path).returncode == 0


# ---------------------------------------------------------------- what people really do


def interrupt_at(monkeypatch, round_):
    from coterie.runtime.run import Run

    original = Run._judge

    def stop(self, name, one, number):
        if number == round_:
            raise KeyboardInterrupt
        return original(self, name, one, number)

    monkeypatch.setattr(Run, "_judge", stop)


def test_the_books_of_a_run_that_was_interrupted_and_resumed_hold(cli, three, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, 3)  # the sites have answered, the server never wrote it down
        assert cli("cluster", *FILES, "-k", 3, "--out", "run")[0] == 130
    assert cli("cluster", *FILES, "-k", 3, "--out", "run", "--resume")[0] == 0
    code, out, err = cli("ledger", "verify", "run")
    assert code == 0, err
    assert "never arrived and were asked for again" in out


def test_a_resumed_run_must_find_the_rows_it_began_with(cli, three, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, 3)
        cli("cluster", *FILES, "-k", 3, "--out", "run")
    whole = (tmp_path / "south.csv").read_text()
    (tmp_path / "south.csv").write_text(whole.replace("1", "2", 1))
    code, _, err = cli("cluster", *FILES, "-k", 3, "--out", "run", "--resume")
    assert code == 2
    assert "the rows of south are not those the run began with" in err
    (tmp_path / "south.csv").write_text(whole)
    assert cli("cluster", *FILES, "-k", 3, "--out", "run", "--resume")[0] == 0


def test_a_difference_in_settings_is_named_with_both_values(cli, three, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, 3)
        cli("cluster", *FILES, "-k", 3, "--out", "run")
    err = cli("cluster", *FILES, "-k", 4, "--out", "run", "--resume")[2]
    assert "settings.parameters.n_clusters: it was 3 and is now 4" in err


def test_labels_never_overwrite_anything_unasked(cli, three, tmp_path):
    cli("cluster", *FILES, "-k", 2, "--out", "run")
    before = (tmp_path / "north.csv").read_bytes()
    code, _, err = cli("assign", "run/model.json", "north.csv", "--out", "north.csv")
    assert code == 2
    assert (tmp_path / "north.csv").read_bytes() == before
    assert cli("assign", "run/model.json", "north.csv", "--out", "new.parquet")[0] == 0
    assert "already there" in cli("assign", "run/model.json", "north.csv", "--out", "new.parquet")[2]
    assert cli("assign", "run/model.json", "north.csv", "--out", "new.parquet", "--force")[0] == 0
    write_csv("inf.csv", [(1.0, "inf", 2.0)])
    assert "infinite" in cli("assign", "run/model.json", "inf.csv")[2]
    write_csv("hole.csv", [(1.0, "", 2.0), (1.0, 2.0, 3.0)])
    assert "1 rows miss values and got no label" in cli("assign", "run/model.json", "hole.csv")[1]


def test_two_commands_do_not_share_a_folder(cli, three, tmp_path):
    from coterie.cli.claims import Claimed

    with Claimed(tmp_path / "run"):
        code, _, err = cli("cluster", *FILES, "-k", 2, "--out", "run")
    assert code == 2
    assert "another coterie is at work" in err
    assert not (tmp_path / "run").exists()
    assert cli("cluster", *FILES, "-k", 2, "--out", "run")[0] == 0


def test_the_demonstration_does_not_overwrite_a_run(cli, three, tmp_path):
    cli("cluster", *FILES, "-k", 2, "--out", "run")
    before = (tmp_path / "run" / "result.json").read_bytes()
    code, _, err = cli("demo", "--out", "run")
    assert code == 2
    assert "holds something else than a demonstration" in err
    assert (tmp_path / "run" / "result.json").read_bytes() == before


def test_books_that_are_missing_are_missed(cli, three, tmp_path):
    import shutil

    cli("cluster", *FILES, "-k", 2, "--out", "run")
    (tmp_path / "run/journal/sites/north.jsonl").unlink()
    code, _, err = cli("ledger", "verify", "run")
    assert code == 4
    assert "the book of north is missing" in err
    shutil.rmtree(tmp_path / "run/journal")
    code, out, _ = cli("ledger", "verify", "run")
    assert code == 0
    assert "nothing was compared" in out
    assert cli("ledger", "show", "north.csv")[0] == 2


def test_what_the_ledger_shows_adds_up(cli, three):
    import re

    cli("cluster", *FILES, "-k", 3, "--out", "run")
    for place in ("run", "run/journal/sites/north.jsonl"):
        shown = cli("ledger", "show", place)[1]
        rows = [int(n.replace(",", "")) for n in re.findall(r"^ +\d+(?:-\d+)? .* ([\d,]+) *$", shown, re.M)]
        total = int(re.search(r"([\d,]+) bytes", shown)[1].replace(",", ""))
        assert len(rows) >= 5
        assert sum(rows) == total


def test_many_clusters_get_their_rows_by_default(cli, three):
    result = json.loads(cli("cluster", *FILES, "-k", 60, "--out", "many", "--json")[1])
    assert min(result["counts"]) > 0
    code, _, err = cli("cluster", *FILES, "-k", 60, "--method", "one-shot", "--out", "few")
    assert code == 2
    assert "local centers for 60 clusters" in err


def test_fewer_distinct_rows_than_clusters_is_said(cli):
    write_csv("same.csv", [(1.0, 1.0, 1.0)] * 20)
    code, out, _ = cli("cluster", "same.csv", "-k", 3)
    assert code == 0
    assert "2 of the clusters are empty" in out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("data = [1, 2]\nclusters = 2", "files are named as text"),
        ("data = { a = 1 }\nclusters = 2", "files are named as text"),
        ('data = ["north.csv"]', "clusters is missing"),
        ('data = ["north.csv"]\nclusters = 2\nseed = -4', "seed=-4"),
        ('data = ["north.csv"]\nclusters = 2\n[settings]\nn_clusters = 4', "say it as 'clusters'"),
        ('data = ["north.csv"]\nclusters = 2\n[settings]\nepochs = "two"', "epochs='two' must be a whole number"),
        ('data = ["north.csv"]\nclusters = 2\n[settings]\nepochs = true', "epochs=True must be a whole number"),
        (
            'data = ["north.csv"]\nclusters = 2\nscale = "minmax"\nranges = { a = [1, -1], b = "x" }',
            "the range of 'a'",
        ),
    ],
)
def test_job_files_that_cannot_be_are_named(cli, three, tmp_path, text, told):
    Path("job.toml").write_text(text)
    before = sorted(p.name for p in tmp_path.iterdir())
    code, _, err = cli("run", "job.toml")
    assert code == 2, err
    assert told in err
    assert "Traceback" not in err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_values_outside_declared_ranges_are_named_by_site_and_column(cli, three):
    Path("job.toml").write_text(
        'data = ["north.csv", "south.csv"]\nclusters = 2\nscale = "minmax"\n'
        "ranges = { a = [0, 1], b = [-99, 99], c = [-99, 99] }\nout = 'run'\n"
    )
    code, _, err = cli("run", "job.toml")
    assert code == 3
    assert "column 'a' holds values outside its declared range" in err
    assert "Traceback" not in err


def test_a_column_without_any_value_and_huge_values_are_named(cli):
    write_csv("hole.csv", [(1.0, "", 3.0), (2.0, "", 1.0)] * 4)
    code, _, err = cli("cluster", "hole.csv", "-k", 2, "--missing", "mean")
    assert code == 2
    assert "column 'b' holds no value at any site" in err
    write_csv("huge.csv", [("1e300", 1.0, 3.0)] * 4)
    assert "values beyond 1e+150" in cli("cluster", "huge.csv", "-k", 2)[2]
    pq.write_table(pa.table({"a": pa.array([2**63 + 1, 5], pa.uint64())}), "large.parquet")
    code, _, err = cli("cluster", "large.parquet", "-k", 1)
    assert code == 2
    assert "'a'" in err


def test_folders_that_cannot_be_written_end_in_a_sentence(cli, three, tmp_path):
    Path("afile").write_text("x")
    for out in ("afile/x", "/proc/nowhere/x", "n" * 300):
        code, _, err = cli("cluster", *FILES, "-k", 2, "--out", out)
        assert code == 2, err
        assert err.count("error:") == 1
        assert "Traceback" not in err
    assert cli("demo", "--out", "afile")[0] == 2


def test_output_into_a_closed_pipe_is_no_error(tmp_path):
    done = subprocess.run(f"{COTERIE} methods | head -1", shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""
