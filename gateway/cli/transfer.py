"""`mnemogate memory import` and `export`: a memory is brought along, and taken away.

What other programs export is read here, item by item, and sent to the gateway as parts of an
import: each part is written in pieces, so that others keep their memory meanwhile.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.client import message_of
from gateway.cli.formatting import printable
from gateway.cli.import_sender import ImportSender, Outcome, import_part
from gateway.cli.memory import PersonOptions, UserMemory, person_options, user_options
from gateway.cli.options import CommandFailed, print_json

if TYPE_CHECKING:
    from memory.export_format import ExportLine
    from memory.formats.files import Broken
    from memory.formats.records import Bundle, BundleCount

    Bundles = Callable[[], Iterator[Bundle | Broken]]

# Lines of an export that are not records: its first and last.
FRAME = 2
PROGRAMS = ("chatgpt", "claude", "openwebui", "letta", "mem0")
# Most people listed in a message.
OWNERS = 8
# Items that are shown, of those left out.
LEFT_OUT = 10


@click.command(short_help="Export everything about a user.")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "kind",
    type=click.Choice(["ndjson", "markdown"]),
    default="ndjson",
    show_default=True,
    help="One JSON object a line, or a FOLDER of pages to read and edit.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="The file to write, for ndjson.  [default: standard output]",
)
@person_options
def export(person: UserMemory, output: Path | None, kind: str, folder: Path | None) -> None:
    """Write everything stored about the user; `import` reads it, from either format.

    \b
    Examples:
      mnemogate memory export --user ada -o ada.ndjson
      mnemogate memory export --user ada --format markdown ada
    """
    if (kind == "markdown") != (folder is not None) or (folder and output):
        raise CommandFailed(
            "A folder goes with --format markdown, and -o with ndjson: "
            "mnemogate memory export --format markdown FOLDER"
        )
    answer = person.api.send("GET", person.path("export"), params=person.params)
    if answer.status_code == 404:
        raise CommandFailed(message_of(answer))
    records = answer.content.count(b"\n") - FRAME
    if not records:
        raise CommandFailed(
            f"Nothing is stored about the user {person.user!r}. Check --user, --agent and --url."
        )
    if folder is not None:
        pages = _write_pages(folder, answer.content)
        click.echo(f"{records} records on {pages} pages in {folder}")
    elif output is None:
        sys.stdout.buffer.write(answer.content)
    else:
        try:
            _write_private(output, answer.content)
        except OSError as e:
            raise CommandFailed(
                f"{output} cannot be written: {e.strerror}. Choose another --output."
            ) from e
        click.echo(f"{records} records in {output}")


def _write_private(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, readable by its owner alone. Raises OSError."""
    path = path.resolve()
    # A pipe or a device, which keeps nothing.
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    # Of mode 0600.
    fd, part_path = tempfile.mkstemp(dir=path.parent, prefix=".export-")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.replace(part_path, path)
    except BaseException:
        os.unlink(part_path)
        raise


def _write_pages(folder: Path, body: bytes) -> int:
    from memory.export_format import ExportEnd
    from memory.formats.files import BadSource
    from memory.formats.folder import write_folder

    lines = list(_lines(body))
    if not isinstance(lines[-1], ExportEnd):
        raise CommandFailed("The export was cut short by the gateway. Try again.")
    try:
        return write_folder(folder, lines)
    except BadSource as e:
        raise CommandFailed(str(e)) from e


def _lines(body: bytes) -> Iterator[ExportLine]:
    """Yield the lines of an export. Raises CommandFailed for a bad one."""
    from memory.export_format import BadLine, line_at, lines_in

    try:
        yield from (line_at(body, number, at) for number, at in lines_in(body) if number)
    except BadLine as e:
        raise CommandFailed(str(e)) from e


@click.command("import", short_help="Import an export, also of other programs.")
@click.argument("source", metavar="FILE", type=click.Path(allow_dash=True))
@click.option(
    "--from",
    "program",
    type=click.Choice(PROGRAMS),
    help="The program that FILE comes from.  [default: Mnemogate]",
)
@click.option("--owner", help="Whose of the people in FILE, by that program's id, if it has many.")
@click.option("--dry-run", is_flag=True, help="Only tell what FILE holds.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
@user_options
def import_(
    person_options: PersonOptions, source: str, program: str | None, owner: str | None, **how: bool
) -> None:
    """Import FILE for the user: an export (- for standard input), a folder of Markdown pages, or
    what another program exports, as a file, a .zip or a folder. Doing it again adds nothing twice.

    \b
    Examples:
      mnemogate memory import ada.ndjson --user ada
      mnemogate memory import --from chatgpt export.zip --user ada
      mnemogate memory import --from claude export.zip --dry-run
    """
    if program is None and not Path(source).is_dir():
        _import_lines(person_options, source, how["dry_run"])
        return
    bundles = _bundles(Path(source), program)
    count, broken_records = _count(bundles, source, owner)
    if how["dry_run"]:
        _tell(_report_counts(count), broken_records, how["as_json"])
        return
    chosen_bundles = partial(_of_owner, bundles, owner)
    with person_options.open(makes=True) as person:
        outcome = ImportSender(person, count).send_all(chosen_bundles())
    outcome.broken_records[:0] = broken_records
    _tell(outcome.report(), outcome.broken_records, how["as_json"], outcome)


def _import_lines(person_options: PersonOptions, source: str, dry_run: bool) -> None:
    """Import an export of ours, as one: a bad line means that nothing is stored."""
    try:
        if source == "-":
            body = sys.stdin.buffer.read()
        else:
            body = Path(source).read_bytes()
    except OSError as e:
        raise CommandFailed(f"{source} cannot be read: {e.strerror}.") from e
    if dry_run:
        print_json(_report_counts(_count_lines(body)))
        return
    with person_options.open(makes=True) as person:
        report = import_part(person, body)
    print_json(report)


def _count_lines(body: bytes) -> BundleCount:
    from memory.formats.records import Bundle, BundleCount

    count = BundleCount()
    for line in _lines(body):
        count.add(Bundle([line]))
    return count


def _bundles(source: Path, program: str | None) -> Bundles:
    """Return what reads the source, once each time it is called."""
    from memory.formats.files import read_source
    from memory.formats.folder import read_folder

    if program is None:
        return partial(read_folder, source)
    return partial(read_source, source, program)


def _count(bundles: Bundles, source: str, owner: str | None) -> tuple[BundleCount, list[Broken]]:
    """Read everything once: count what there is of the owner, and collect what is broken.

    Raises CommandFailed if there is nothing, or people are several and none is chosen.
    """
    from memory.formats.files import BadSource, Broken
    from memory.formats.records import BundleCount

    people = BundleCount()
    count = BundleCount()
    broken_records = []
    try:
        for bundle in bundles():
            if isinstance(bundle, Broken):
                broken_records.append(bundle)
                continue
            people.add(bundle)
            if owner is None or bundle.owner == owner:
                count.add(bundle)
    except BadSource as e:
        raise CommandFailed(printable(str(e))) from e
    names = list(people.owners)
    owner_names = printable(", ".join(names[:OWNERS])) + (", ..." if len(names) > OWNERS else "")
    if owner is None and len(names) > 1:
        raise CommandFailed(
            f"{source} holds what {len(names)} people said: {owner_names}. Choose one with "
            "--owner; import each into a separate memory (--user)."
        )
    if owner is not None and owner not in people.owners:
        raise CommandFailed(
            f"{source} holds nothing of the owner {owner!r}. It names: {owner_names or 'nobody'}."
        )
    if not count.messages + count.passages + count.blocks:
        why = ""
        if broken_records:
            why = printable(f" {broken_records[0].place}: {broken_records[0].reason}.")
        raise CommandFailed(f"{source} holds nothing that can be imported.{why}")
    return count, broken_records


def _of_owner(bundles: Bundles, owner: str | None) -> Iterator[Bundle]:
    from memory.formats.files import Broken

    for bundle in bundles():
        if not isinstance(bundle, Broken) and (owner is None or bundle.owner == owner):
            yield bundle


def _report_counts(count: BundleCount) -> dict[str, Any]:
    return {
        "object": "import.found",
        "conversations": count.conversations,
        "messages": count.messages,
        "passages": count.passages,
        "blocks": count.blocks,
    }


def _tell(
    report: dict[str, Any],
    broken_records: list[Broken],
    as_json: bool,
    outcome: Outcome | None = None,
) -> None:
    """Print the report; what was left out goes to standard error, with its place."""
    if as_json:
        reasons = [{"place": b.place, "reason": b.reason} for b in broken_records[:100]]
        print_json({**report, "left_out": len(broken_records), "reasons": reasons})
        return
    if outcome is None:
        counts = [f"{n} {kind}" for kind, n in report.items() if isinstance(n, int)]
        click.echo(f"It holds {', '.join(counts)}.")
    else:
        click.echo(outcome.summary())
    if broken_records:
        click.echo(f"Left out: {len(broken_records)}.", err=True)
    for record in broken_records[:LEFT_OUT]:
        click.echo(printable(f"  {record.place}: {record.reason}"), err=True)
