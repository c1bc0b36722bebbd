"""Looking before and after: ``methods``, ``audit``, ``ledger``, ``policy``, ``version``."""

from __future__ import annotations

import dataclasses
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

import coterie
from coterie.cli.terminal import console, print_json, show_table
from coterie.errors import InputError

__all__ = ["add_to"]

ledger = typer.Typer(help="What left, and what the server saw of it.", no_args_is_help=True)
policy = typer.Typer(help="A site's rules: write, check and explain them.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("methods")(methods)
    app.command("audit")(audit)
    ledger.command("show")(ledger_show)
    ledger.command("verify")(ledger_verify)
    policy.command("init")(policy_init)
    policy.command("check")(policy_check)
    policy.command("explain")(policy_explain)
    app.add_typer(ledger, name="ledger")
    app.add_typer(policy, name="policy")
    app.command("version")(version)


def version() -> None:
    """Print the installed version."""
    console.print(coterie.__version__, highlight=False)


def methods(as_json: AsJson = False) -> None:
    """List the methods: what each costs, whether single answers are seen, what it discloses."""
    from coterie.protocols.methods import METHODS

    if as_json:
        names = ("name", "title", "cost", "single_answers", "discloses")
        print_json([{name: getattr(method, name) for name in names} for method in METHODS.values()])
        return
    for method in METHODS.values():
        console.print(f"[bold]{method.name}[/]  {method.title}", highlight=False)
        console.print(f"  numbers up a site: {method.cost}", highlight=False, markup=False)
        console.print(f"  single answers seen: {method.single_answers}", highlight=False, markup=False)
        console.print(f"  discloses: {method.discloses}\n", highlight=False, markup=False)


def audit(method: Annotated[str, typer.Argument(help="A method's name.")], as_json: AsJson = False) -> None:
    """Everything a site can be made to send by a method, read off the types of its messages."""
    from coterie.protocols.methods import METHODS
    from coterie.protocols.methods import audit as audited
    from coterie.sites.toml_files import nearest_name

    if method not in METHODS:
        raise InputError(f"there is no method {method!r}{nearest_name(method, METHODS)}")
    lines = audited(method)
    if as_json:
        print_json([dataclasses.asdict(line) for line in lines])
        return
    rows = [
        [
            _short(line.asked),
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
    console.print("Sizes are stated by the question, never by the rows.", highlight=False)


Place = Annotated[Path, typer.Argument(help="A run's folder, or a ledger.jsonl of a server or a site.")]


def ledger_show(place: Place, as_json: AsJson = False) -> None:
    """What left, in plain words: by question for a server's ledger, by answer for a site's own."""
    from coterie.messages.chain import read_chain

    path = _ledger_file(place)
    lines = read_chain(path)
    if as_json:
        print_json(lines)
        return
    lines = [line for line in lines if line.get("event") != "once"]  # notes to itself; nothing left
    if lines and "event" in lines[0]:
        _show_site(path, lines)
    else:
        _show_server(path, lines)


_SEEN = {"single": "single answers", "summed": "plain sums", "masked": "masked sums", "": "a code"}
_LEGEND = (
    "Single answers: the server sees each by itself. Plain sums: it sees each, and says it only adds them up. "
    "Masked sums: it sees nothing but the sum."
)


def _show_site(path: Path, lines: list[dict[str, Any]]) -> None:
    def key(line: dict[str, Any]) -> tuple[str, ...]:
        what = line.get("answer") or line.get("code") or line["event"]
        seen = _SEEN.get(line.get("seen", ""), line.get("seen", ""))
        return line["event"], what, line.get("content", ""), seen

    rows = [
        [_rounds(group), *same, f"{sum(x['floats'] for x in group):,}", f"{sum(x['bytes'] for x in group):,}"]
        for same, group in _grouped(lines, key)
    ]
    heads = ["rounds", "event", "what", "content", "the server sees", "numbers", "bytes"]
    show_table(f"What left this site ({path.stem})", heads, rows)
    total, numbers = sum(line["bytes"] for line in lines), sum(line["floats"] for line in lines)
    console.print(f"{len(lines)} messages, {numbers:,} numbers, {total:,} bytes in all.", highlight=False)
    console.print(_LEGEND, style="dim", highlight=False)


def _show_server(path: Path, lines: list[dict[str, Any]]) -> None:
    def key(line: dict[str, Any]) -> tuple[str, ...]:
        good = sum(count[0].startswith("answered") for count in line["sites"].values())
        seen = _SEEN.get(line["seen"], line["seen"])
        return _short(line["asked"]), line["answer"], seen, f"{good} of {len(line['sites'])}"

    def up(group: list[dict[str, Any]]) -> str:
        return f"{sum(count[2] for line in group for count in line['sites'].values()):,}"

    rows = [[_rounds(group), *same, up(group)] for same, group in _grouped(lines, key)]
    show_table(str(path), ["rounds", "asked", "answer", "the server sees", "answered", "bytes up"], rows)
    total = sum(count[2] for line in lines for count in line["sites"].values())
    console.print(f"{len(lines)} rounds, {total:,} bytes up in all.", highlight=False)
    console.print(_LEGEND, style="dim", highlight=False)
    for line in lines:
        for name, count in line["sites"].items():
            if count[0] != "answered":
                console.print(f"round {line['round']}: {name}: {count[0]}", highlight=False, markup=False)


def _grouped(lines: list[dict[str, Any]], key: Any) -> list[tuple[tuple[str, ...], list[dict[str, Any]]]]:
    """Runs of lines that differ in their round only."""
    return [(same, list(group)) for same, group in groupby(lines, key)]


def _short(kind: str) -> str:
    """A question's name without the file it is declared in."""
    return "+".join(part.rpartition(".")[2] for part in kind.split("+"))


def _rounds(lines: list[dict[str, Any]]) -> str:
    first, last = lines[0]["round"], lines[-1]["round"]
    return str(first) if first == last else f"{first}-{last}"


def ledger_verify(place: Place, as_json: AsJson = False) -> None:
    """Check every seal; in a run's folder also that the sites' ledgers add up to the server's."""
    from coterie.cli.books import compare_books
    from coterie.messages.chain import read_chain

    path = _ledger_file(place)
    lines = read_chain(path)
    compared = compare_books(place, lines) if place.is_dir() and lines and "sites" in lines[0] else None
    if as_json:
        told = {"file": str(path), "lines": len(lines), "holds": True}
        print_json(told if compared is None else {**told, "sites": compared.sites, "resent": compared.resent})
        return
    console.print(f"{path}: {len(lines)} lines, every seal holds.", highlight=False, soft_wrap=True)
    if compared is None or not compared.sites:
        console.print("No site's own book is here, so nothing was compared.", highlight=False)
        return
    console.print(f"The books of {compared.sites} sites add up to the server's, byte for byte.", highlight=False)
    if compared.resent:
        console.print(
            f"{compared.resent:,} bytes left sites, never arrived and were asked for again: the run was interrupted.",
            highlight=False,
        )


def _ledger_file(place: Path) -> Path:
    path = place / "ledger.jsonl" if place.is_dir() else place
    if not path.exists():
        raise InputError(f"{path}: there is no such file; name a run's folder or a ledger.jsonl.")
    with path.open("rb") as file:
        if file.read(1) not in (b"", b"{"):
            raise InputError(f"{path}: this is not a ledger; name a run's folder or a ledger.jsonl.")
    return path


def policy_init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("policy.toml"),
    force: Annotated[bool, typer.Option(help="Overwrite a file that is there.")] = False,
) -> None:
    """Write a policy file with commented defaults."""
    from coterie.sites.policy_files import POLICY_TEXT

    if path.exists() and not force:
        raise InputError(f"{path} is already there; pass --force to overwrite it.")
    path.write_text(POLICY_TEXT)
    console.print(f"Wrote [bold]{path}[/]; change it, then `coterie policy explain {path}`.", soft_wrap=True)


PolicyFile = Annotated[Path, typer.Argument(help="A policy file.")]


def policy_check(path: PolicyFile) -> None:
    """Say whether a policy file is valid, and what is wrong if not."""
    from coterie.sites.policy_files import read_policy

    read_policy(path)
    console.print(f"{path} is valid.", highlight=False)


def policy_explain(path: PolicyFile, as_json: AsJson = False) -> None:
    """Say in sentences what a policy allows."""
    from coterie.sites.policy_files import explain_policy, read_policy

    told = explain_policy(read_policy(path))
    if as_json:
        print_json(told)
        return
    for sentence in told:
        console.print(f"- {sentence}", highlight=False)
