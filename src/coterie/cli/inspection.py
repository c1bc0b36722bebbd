"""Before a run: ``methods``, ``audit``, ``policy``, ``version``."""

from __future__ import annotations

import base64
import dataclasses
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import coterie
from coterie.cli import options as opt
from coterie.cli.options import app, policy
from coterie.cli.terminal import console, print_json, say, show_table, tell
from coterie.errors import InputError
from coterie.text import nearest_name

if TYPE_CHECKING:
    from coterie.methods.method import Method

Rules = Annotated[str, typer.Argument(help="A policy file, or private, strict, standard, research or simulation.")]


@app.command()
def methods(as_json: opt.AsJson = False) -> None:
    """List the methods, recommended ones first: what each costs and what it discloses."""
    from coterie.methods.registry import METHODS

    sections: dict[str, list[Method]] = {"Recommended": [], "Other methods": [], "Baselines, to compare with": []}
    for method in METHODS.values():
        title = (
            "Recommended" if method.use else "Baselines, to compare with" if method.is_baseline else "Other methods"
        )
        sections[title].append(method)
    if as_json:
        fields = ("name", "title", "cost", "per_site_results", "needs_rows", "can_be_private", "discloses")
        ordered = [method for section in sections.values() for method in section]
        print_json([{field: getattr(method, field) for field in fields} for method in ordered])
        return
    for title, section in sections.items():
        console.print(f"[bold underline]{title}[/]\n", highlight=False)
        for method in section:
            _show_method(method)


def _show_method(method: Method) -> None:
    console.print(f"[bold]{method.name}[/]  {method.title}", highlight=False)
    if method.use:
        say(f"use it {method.use}", "  ")
    say(f"values sent per site: {method.cost}", "  ")
    say(f"per-site results: {method.per_site_results}", "  ")
    if method.needs_rows:
        say("needs single rows: every site's policy must exempt it from groups", "  ")
    if method.can_be_private:
        say("can be run with differential privacy (--epsilon)", "  ")
    say(f"discloses: {method.discloses}", "  ")
    tell("")


@app.command()
def audit(method: Annotated[str, typer.Argument(help="The name of a method.")], as_json: opt.AsJson = False) -> None:
    """List everything a method can ask a site to send, read from the types of its messages."""
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
            " x ".join(map(str, line.axes)) or "1",
            line.dtype,
            line.bound,
            line.content + (" (a value for every row)" if line.holds_rows else ""),
        ]
        for line in lines
    ]
    heads = ["question", "array", "size", "type", "bound", "content"]
    show_table(f"What {method} can ask a site to send", heads, rows)
    tell("The question fixes every size; no size depends on a site's rows.")


@policy.command("init")
def policy_init(
    path: Annotated[Path, typer.Argument(help="Where to write the policy.")] = Path("policy.toml"),
    preset: Annotated[
        str, typer.Option(help="The policy to start from: private, strict, standard or research.")
    ] = "standard",
    force: opt.Force = False,
) -> None:
    """Write a policy file that explains every rule."""
    from coterie.sites.policy_files import policy_text

    text = policy_text(preset)
    opt.check_new(path, force)
    path.write_text(text, encoding="utf-8")
    tell(f"Wrote {path}. Edit it, then run `coterie policy explain {path}`.")


@policy.command("check")
def policy_check(rules: Rules) -> None:
    """Check a policy file."""
    from coterie.sites.policy_files import find_policy

    find_policy(rules)
    tell(f"{rules} is valid.")


@policy.command("explain")
def policy_explain(rules: Rules, as_json: opt.AsJson = False) -> None:
    """Explain what a policy allows and what it refuses."""
    from coterie.sites.policy_files import explain_policy, find_policy

    sentences = explain_policy(find_policy(rules))
    if as_json:
        print_json(sentences)
        return
    for sentence in sentences:
        say(sentence, "- ")


@policy.command("upgrade")
def policy_upgrade(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A policy file of an earlier version of coterie.")],
) -> None:
    """Rewrite a policy file for this version of coterie; the old file is kept as FILE.old."""
    from coterie.sites.policy_files import upgraded_policy

    text = upgraded_policy(path)
    kept = path.with_name(path.name + ".old")
    if kept.exists():
        raise InputError(f"{kept} already exists; move it first.")
    kept.write_bytes(path.read_bytes())
    kept.chmod(path.stat().st_mode & 0o777)
    path.write_text(text, encoding="utf-8")
    tell(f"Rewrote {path}; the old file is {kept}. Run `coterie policy explain {path}` to review it.")


@policy.command("key")
def policy_key(
    ledger_file: Annotated[Path, typer.Argument(metavar="LEDGER", help="The site's own ledger, a .jsonl file.")],
    new: Annotated[bool, typer.Option("--new", help="Create the key if the site has none yet.")] = False,
) -> None:
    """Print a site's public key, for the other sites to pin in their policies.

    The private key is in LEDGER.key, beside the site's ledger, and stays there.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from coterie.sites.ledger import SiteLedger

    path = ledger_file.with_name(ledger_file.name + ".key")
    if not path.exists() and not new:
        raise InputError(
            f"{path}: there is no such key. A site creates its key when it first starts; give the path of its "
            "ledger, or pass --new to create the key now."
        )
    secret = path.read_bytes() if path.exists() else SiteLedger(ledger_file).secret()
    if len(secret) != 32:
        raise InputError(f"{path} has {len(secret)} bytes; a key has 32. Restore it from a backup.")
    public = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    tell(base64.b64encode(public).decode())


@policy.command("secret")
def policy_secret() -> None:
    """Print a new alignment_key, for sites that hold columns of the same rows.

    One site prints it and every site writes it into its policy. With it, sites turn the keys of their rows into
    matching tags. The server never sees it.
    """
    tell(base64.b64encode(secrets.token_bytes(32)).decode())


@app.command()
def version() -> None:
    """Print the installed version."""
    tell(coterie.__version__)
