"""Certificates of runs: ``certificate RUN``, ``certificate verify FILE``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from coterie.cli import options as opt
from coterie.cli.options import certificate
from coterie.cli.terminal import print_json, say, show_table, tell
from coterie.errors import InputError, LedgerBroken
from coterie.files import MEGABYTE, read_from_others
from coterie.messages.chain import read_chain
from coterie.messages.identity import KEY_BYTES, fingerprint, public_signing_key
from coterie.secure.certificates import CERTIFICATE, MAX_CERTIFICATE_BYTES, RunCertificate, Statement
from coterie.sites.identity_files import IdentityFiles, from_text
from coterie.sites.ledger import SIGNING_KEY, signed_head_of
from coterie.sites.tables.phrases import listed
from coterie.text import count_of

DOES_NOT_FIT = 1


@certificate.command("show")
def certificate_show(
    run: Annotated[Path, typer.Argument(help="The folder of the run.")],
    out: Annotated[Path | None, typer.Option(help="Copy the certificate to this file.")] = None,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
) -> None:
    """Show who ordered a run, and what its sites signed: protection, verified sums, questions, bytes, ledger.

    Example: coterie certificate run1 --out run1.certificate.json
    """
    path = run / CERTIFICATE if run.is_dir() else run
    found = read_certificate(path)
    if out is not None:
        opt.check_new(out, force)
        shutil.copyfile(path, out)
    if as_json:
        print_json({"run": found.run, "order": _order_facts(found), "sites": _facts(found)})
        return
    _show(found)
    if out is not None:
        tell(f"The certificate is in {out}; `coterie certificate verify {out}` checks it on any machine.")


@certificate.command("verify")
def certificate_verify(
    file: Annotated[Path, typer.Argument(help="The certificate, such as RUN/certificate.json.")],
    authority: Annotated[
        str | None,
        typer.Option(
            help="The federation's authority: its file (KIT/startup/identity/authority), text or fingerprint."
        ),
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Check a certificate offline: all signatures, the analyst's too, one run, one order.

    The exit code is 1 if anything does not fit.

    Example: coterie certificate verify run1.certificate.json --authority north/startup/identity/authority
    """
    found = read_certificate(file)
    key = found.authority_key if authority is None else _authority(authority, found)
    problems = ["The authority is not the one given."] if key is None else found.problems(key)
    if as_json:
        facts = {"run": found.run, "order": _order_facts(found), "problems": problems, "sites": _facts(found)}
        print_json({"file": str(file), **facts})
    else:
        for problem in problems:
            tell(problem)
        if not problems:
            signed = len(found.statements)
            of = f"{signed} of {count_of(len(found.sites), 'site')}"
            tell(f"{file}: verified the order of {found.ordered.analyst} and the statements of {of}.")
            for sentence in privacy_sentences(found):
                say(sentence)
        tell(_vouching(found, is_given=authority is not None))
    if problems:
        raise typer.Exit(DOES_NOT_FIT)


def read_certificate(path: Path) -> RunCertificate:
    """The certificate in a file."""
    if not path.exists() and path.name == CERTIFICATE and path.parent.is_dir():
        raise InputError(f"{path.parent} has no certificate: it holds no finished run, or one of an earlier version.")
    return RunCertificate.read(read_from_others(path, MAX_CERTIFICATE_BYTES), path)


def _authority(given: str, found: RunCertificate) -> bytes | None:
    """The authority's key; None where a fingerprint is given and it is not that of the certificate's authority."""
    digits = "".join(given.split()).lower()
    if len(digits) == 2 * KEY_BYTES and set(digits) <= set("0123456789abcdef"):
        return found.authority_key if fingerprint(found.authority_key) == fingerprint_of(digits) else None
    raw = read_from_others(Path(given), MEGABYTE) if len(given) < 4096 and Path(given).is_file() else given.encode()
    try:
        key = from_text(raw)
        if len(key) != KEY_BYTES:
            raise ValueError
    except ValueError:
        raise InputError(
            f"--authority {given!r} is no file and no key of an authority; give KIT/startup/identity/authority, its "
            "text, or the fingerprint."
        ) from None
    return key


def fingerprint_of(digits: str) -> str:
    """Hexadecimal digits as fingerprints are written."""
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def _vouching(found: RunCertificate, *, is_given: bool) -> str:
    if found.authority_made_for == "run":
        return "The authority was made for this run: whoever ran it played all sites, and could sign as any of them."
    if is_given:
        return f"The authority that you gave vouches for the sites: {fingerprint(found.authority_key)}"
    return (
        "The sites were checked against the authority that the certificate names. Compare its fingerprint, or pass "
        f"--authority: {fingerprint(found.authority_key)}"
    )


def _show(found: RunCertificate) -> None:
    rows = [[name, *statement_cells(statement)] for name, statement in _statements(found).items()]
    show_table(f"Certificate of run {found.run[:8]}", ["site", *STATEMENT_HEADS], rows)
    say(_order_sentence(found))
    missing = [name for name, signed in found.sites.items() if signed is None]
    if missing:
        tell(f"Without a signature: {', '.join(missing)}.")
    for name, said in _statements(found).items():
        if said.breaks:
            tell(f"{name}: the data officer acknowledged {count_of(said.breaks, 'break')} of its ledger.")
    for sentence in privacy_sentences(found):
        say(sentence)
    for problem in found.problems(found.authority_key):
        tell(problem)
    tell(_vouching(found, is_given=False))


def privacy_sentences(found: RunCertificate) -> Iterator[str]:
    """What sites say of their privacy budgets."""
    said = {name: statement for name, statement in _statements(found).items() if statement.delta}
    if not said:
        return
    by_cost: dict[str, list[str]] = {}
    for name, one in said.items():
        by_cost.setdefault(f"epsilon = {one.epsilon:.4g} at delta = {one.delta:g}", []).append(name)
    taken = "; ".join(f"{cost} ({', '.join(names)})" for cost, names in by_cost.items())
    yield f"Differentially private: the run took from the sites' budgets {taken}."
    others = [name for name, one in said.items() if not one.bounds_table]
    if others:
        yield (
            f"Epsilon bounds what the releases of this run reveal about a row of {', '.join(others)}, and not what "
            "is known of the table: there, other runs are answered without noise."
        )
    for name, one in said.items():
        if one.resets:
            yield f"{name}: the data officer began the budget anew {count_of(one.resets, 'time')} before this run."


def _order_sentence(found: RunCertificate) -> str:
    order = found.ordered.read()
    names = [name for name, _ in order.columns]
    over = f"{count_of(len(names), 'column')} ({listed(names)})" if names else "each site's own columns"
    return f"{found.ordered.analyst} ordered {order.method} over {over}."


def _order_facts(found: RunCertificate) -> dict[str, Any]:
    """The order as plain values, and who gave it."""
    return {"analyst": found.ordered.analyst, **json.loads(found.ordered.order)}


def _statements(found: RunCertificate) -> dict[str, Statement]:
    return {name: signed.statement for name, signed in found.statements.items()}


STATEMENT_HEADS = ["protection", "verified", "questions", "refused", "bytes", "head"]


def statement_cells(said: Statement) -> list[str]:
    """What a site signed, in a table."""
    verified = f"{said.verified} (all)" if said.is_whole else f"{said.verified}" if said.verified else "none"
    sees = "noise" if said.delta else f"groups of {said.min_group}+" if said.min_group else "rows"
    head = f"{said.lines} {said.hash.hex()[:8]}"
    return [sees, verified, *(f"{n:,}" for n in (said.answered, said.refused, said.n_bytes)), head]


def _facts(found: RunCertificate) -> dict[str, Any]:
    """The statements as plain values; None for a site that did not sign."""
    facts: dict[str, Any] = dict.fromkeys(found.sites)
    for name, said in _statements(found).items():
        values = said._asdict().items()
        facts[name] = {key: value.hex() if isinstance(value, bytes) else value for key, value in values}
    return facts


def check_heads(folder: Path, run: str) -> int:
    """Compare the heads in a run's certificate with the sites' ledgers that are there; how many there are."""
    if not (folder / CERTIFICATE).exists():
        return 0
    found = read_certificate(folder / CERTIFICATE)
    problems = found.problems(found.authority_key)
    if found.run != run:
        problems.append("It is of another run than the ledger.")
    if problems:
        raise LedgerBroken(f"{folder / CERTIFICATE} does not fit: {' '.join(problems)}")
    compared = 0
    for name, said in _statements(found).items():
        path = folder / "journal" / "sites" / f"{quote(name, safe='')}.jsonl"
        if path.exists():
            lines = read_chain(path)
            if said.lines > len(lines) or lines[said.lines - 1]["chain"] != said.hash.hex():
                raise LedgerBroken(
                    f"{path} is not the ledger whose {said.lines} lines {name} signed in the certificate."
                )
            compared += 1
    return compared


def check_signature(path: Path, lines: list[dict[str, Any]]) -> bool:
    """Check the signed head of a site's ledger, where the site's key is beside it; whether there was one."""
    kit, beside = path.parent.parent, path.with_name(path.name + SIGNING_KEY)
    key = public_signing_key(beside.read_bytes()) if beside.exists() else IdentityFiles(kit).own_public_key()
    return key is not None and signed_head_of(path, lines, key) is not None
