"""Looking beforehand: ``methods``, ``audit``, ``policy``, ``version``."""

from __future__ import annotations

import base64
import dataclasses
import secrets
from pathlib import Path
from typing import Annotated

import typer

import coterie
from coterie.cli import options as opt
from coterie.cli.options import app, policy
from coterie.cli.terminal import console, print_json, say, show_table, tell
from coterie.errors import InputError
from coterie.text import nearest_name

Rules = Annotated[str, typer.Argument(help="A policy file, or one by name: strict, standard, research, simulation.")]


@app.command()
def methods(as_json: opt.AsJson = False) -> None:
    """List the methods: what each costs, whether per-site results are seen, what it discloses."""
    from coterie.methods.registry import METHODS

    if as_json:
        names = ("name", "title", "cost", "per_site_results", "needs_rows", "discloses")
        print_json([{name: getattr(method, name) for name in names} for method in METHODS.values()])
        return
    for method in METHODS.values():
        console.print(f"[bold]{method.name}[/]  {method.title}", highlight=False)
        say(f"values sent a site: {method.cost}", "  ")
        say(f"per-site results seen: {method.per_site_results}", "  ")
        if method.needs_rows:
            say("needs rows as such: sites must exempt it from groups", "  ")
        say(f"discloses: {method.discloses}", "  ")
        tell("")


@app.command()
def audit(method: Annotated[str, typer.Argument(help="A method's name.")], as_json: opt.AsJson = False) -> None:
    """Everything a site can be made to send by a method, read off the types of its messages."""
    from coterie.methods.method import audit as audited
    from coterie.methods.registry import METHODS

    if method not in METHODS:
        raise InputError(f"there is no method {method!r}{nearest_name(method, METHODS)}")
    lines = audited(METHODS[method])
    if as_json:
        print_json([dataclasses.asdict(line) for line in lines])
        return
    rows = [
        [
            line.asked.rpartition(".")[2],
            f"{line.answer}.{line.array}",
            " x ".join(map(str, line.axes)) or "one number",
            line.dtype,
            line.bound,
            line.content + (" (a number for every row)" if line.holds_rows else ""),
        ]
        for line in lines
    ]
    heads = ["question", "array", "size", "numbers", "largest", "content"]
    show_table(f"What a site can be made to send by {method}", heads, rows)
    tell("Sizes are stated by the question, never by the rows.")


@policy.command("init")
def policy_init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("policy.toml"),
    preset: Annotated[str, typer.Option(help="What to start from: strict, standard or research.")] = "standard",
    force: opt.Force = False,
) -> None:
    """Write a policy file with every rule and what it means."""
    from coterie.sites.policy_files import policy_text

    text = policy_text(preset)
    if path.exists() and not force:
        raise InputError(f"{path} is already there; pass --force to overwrite it.")
    path.write_text(text, encoding="utf-8")
    tell(f"Wrote {path}; change it, then `coterie policy explain {path}`.")


@policy.command("check")
def policy_check(rules: Rules) -> None:
    """Say whether a policy file is valid, and what is wrong if not."""
    from coterie.sites.policy_files import find_policy

    find_policy(rules)
    tell(f"{rules} is valid.")


@policy.command("explain")
def policy_explain(rules: Rules, as_json: opt.AsJson = False) -> None:
    """Say in sentences what a policy allows, what it keeps, and where it stops."""
    from coterie.sites.policy_files import explain_policy, find_policy

    sentences = explain_policy(find_policy(rules))
    if as_json:
        print_json(sentences)
        return
    for sentence in sentences:
        say(sentence, "- ")


@policy.command("upgrade")
def policy_upgrade(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A policy file of an earlier version.")],
) -> None:
    """Rewrite a policy file under today's rules; the old one is kept as FILE.old."""
    from coterie.sites.policy_files import upgraded_policy

    text = upgraded_policy(path)
    kept = path.with_name(path.name + ".old")
    if kept.exists():
        raise InputError(f"{kept} is already there; move it away first.")
    kept.write_bytes(path.read_bytes())
    kept.chmod(path.stat().st_mode & 0o777)
    path.write_text(text, encoding="utf-8")
    tell(f"Rewrote {path}; the old file is {kept}. `coterie policy explain {path}` says what it now means.")


@policy.command("key")
def policy_key(
    ledger_file: Annotated[Path, typer.Argument(metavar="LEDGER", help="The site's own ledger, a .jsonl file.")],
    new: Annotated[bool, typer.Option("--new", help="Make the key now, if the site has none yet.")] = False,
) -> None:
    """Print a site's public key, for the other sites to pin in their policies.

    The secret half lies beside the site's ledger, in LEDGER.key, and stays there.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from coterie.sites.ledger import SiteLedger

    path = ledger_file.with_name(ledger_file.name + ".key")
    if not path.exists() and not new:
        raise InputError(
            f"{path}: there is no such key. A site makes its key when it first starts; name its ledger, or pass "
            "--new to make the key of a site that has not started yet."
        )
    secret = path.read_bytes() if path.exists() else SiteLedger(ledger_file).secret()
    if len(secret) != 32:
        raise InputError(f"{path}: a key is 32 bytes, this file holds {len(secret)}; restore it from a copy.")
    public = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    tell(base64.b64encode(public).decode())


@policy.command("secret")
def policy_secret() -> None:
    """Print a new alignment_key, for sites that hold columns of the same rows.

    One site prints it, every site writes it into its policy, and the server never sees it: with it, keys of rows
    become tags that match.
    """
    tell(base64.b64encode(secrets.token_bytes(32)).decode())


@app.command()
def version() -> None:
    """Print the installed version."""
    tell(coterie.__version__)
