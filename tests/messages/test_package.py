"""What holds of all messages: nothing like pickle reads them, refusals have sentences, replies have requests."""

from __future__ import annotations

import ast
from pathlib import Path

import coterie.messages
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply, reply_type

from .samples import ALL_REQUESTS


def test_messages_need_no_pickle_and_nothing_like_it():
    forbidden = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "copyreg", "yaml"}
    functions, methods = {"eval", "exec", "compile", "__import__"}, {"load", "loads", "fromstring", "eval", "exec"}
    folder = Path(coterie.messages.__file__).parent
    files = sorted(folder.rglob("*.py"))
    assert len(files) >= 10
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = set()
            if isinstance(node, ast.Import):
                names = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").partition(".")[0]}
            assert not names & forbidden, f"{file} imports {names & forbidden}"
            if isinstance(node, ast.Call):
                where = f"{file}, line {node.lineno}"
                assert getattr(node.func, "id", "") not in functions, where
                assert getattr(node.func, "attr", "") not in methods, where
                assert all(word.arg != "allow_pickle" for word in node.keywords)


def test_every_refusal_has_a_sentence_fit_for_anyone():
    assert all(code.sentence and "\n" not in code.sentence for code in Refusal)
    assert len({code.sentence for code in Refusal}) == len(Refusal)
    assert all(0 < code < 256 for code in Refusal)


def test_every_reply_names_its_request():
    assert all(issubclass(reply_type(kind), Reply) for kind in ALL_REQUESTS)
