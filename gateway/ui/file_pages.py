"""A user's files: upload, how far reading is, search, a viewer that begins at a hit, deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from litestar import get, post
from litestar.params import FromQuery, QueryParameter
from litestar.response import Redirect, Stream, Template

from gateway.config.file_tools import find_file_limits
from gateway.errors import BadRequest, GatewayError
from gateway.management import files as api
from gateway.management.file_schemas import UserFile, UserFileHit, UserFileText
from gateway.ui.form_request import path_segment
from gateway.ui.people import summarise_user
from gateway.ui.texts import link
from gateway.ui.uploads import UploadedFile
from gateway.ui.visitor import AS_BYTES, TAKES_FILES, AboutUser, Subject, go_to
from memory import IncomingFile

HITS = 30
# Of a file on a page.
LINES = 300
# A hit.
LINES_BEFORE = 20
# That a list of hits shows.
LINES_OF_HIT = 8
PIECE_BYTES = 1 << 18
KINDS = ("text", "symbol")
# Of an upload, shown above the form.
FORM_ERRORS = (400, 409, 413, 507)
UNREAD = ("received", "reading")
Line = Annotated[int | None, QueryParameter(ge=1, le=1_000_000_000)]


@get("/user/files")
async def files_page(
    subject: AboutUser,
    q: FromQuery[str] = "",
    file: FromQuery[str] = "",
    kind: FromQuery[str] = "text",
) -> Template:
    """Show the files, and what a search finds in them. file: the one that is searched."""
    if subject.visitor.is_fragment:
        return subject.page("parts/files.html", **await _list_files(subject))
    hits: list[tuple[UserFileHit, int, str]] = []
    if q.strip():
        if kind not in KINDS:
            kinds = ", ".join(KINDS)
            raise BadRequest(f"`kind` is {kind[:40]!r}: use one of {kinds}.", param="kind")
        hits_list = await api.search_files.fn(subject.context, q, file, kind, HITS)
        hits = [_show_hit(hit, q) for hit in hits_list.data]
    return await _page(subject, q=q, file=file, kind=kind, hits=hits)


def _show_hit(hit: UserFileHit, query: str) -> tuple[UserFileHit, int, str]:
    """Return a hit with its first line that has a word of the query, and the text from there.

    A line before it is shown too. Without such a line it is the hit's beginning.
    """
    lines = hit.content.split("\n")
    place = 0
    if len(lines) == hit.line_end - hit.line_start + 1:
        words = query.casefold().split()
        numbered = enumerate(map(str.casefold, lines))
        place = next((i for i, line in numbered if any(word in line for word in words)), 0)
    text = "\n".join(lines[max(place - 1, 0) : place + LINES_OF_HIT])
    return hit, hit.line_start + place, text


async def _list_files(subject: Subject) -> dict[str, Any]:
    files = (await api.files.fn(subject.context)).data
    return {"files": files, "is_reading": any(user_file.status in UNREAD for user_file in files)}


async def _page(subject: Subject, **context: Any) -> Template:
    values = {"q": "", "file": "", "kind": "text", "hits": [], "fault": "", **context}
    limits = find_file_limits(subject.visitor.gateway.settings)
    files_list = await _list_files(subject)
    head = await summarise_user(subject)
    return subject.page("files.html", limits=limits, **files_list, **head, **values)


@post("/user/files", status_code=200, opt={TAKES_FILES: AS_BYTES})
async def upload_file(subject: AboutUser) -> Template | Redirect:
    """Store the file of the form; of the same name, as a new version."""
    try:
        uploaded_file = subject.visitor.form.files.get("file")
        if uploaded_file is None or not uploaded_file.name:
            raise BadRequest("Choose a file first.", param="file")
        incoming = IncomingFile(
            uploaded_file.name, len(uploaded_file.content), _pieces(uploaded_file)
        )
        await api.store_incoming(subject.context, incoming)
    except GatewayError as e:
        if e.status not in FORM_ERRORS:
            raise
        return await _page(subject, fault=e.message)
    return go_to(link("/user/files", **subject.where))


async def _pieces(uploaded_file: UploadedFile) -> AsyncIterator[bytes]:
    for start in range(0, len(uploaded_file.content), PIECE_BYTES):
        yield bytes(uploaded_file.content[start : start + PIECE_BYTES])


@get("/user/file")
async def file_page(
    subject: AboutUser,
    id: FromQuery[str],
    page: Line = None,
    line: Line = None,
    end: Line = None,
) -> Template:
    """Show a file from a page or a line on. line, end: of a hit, which is marked."""
    file = await api.file.fn(subject.context, path_segment(id))
    text = None
    if file.lines:
        text = await _read_text(subject, file, page, line)
    if text is None:
        lines = []
    else:
        lines = list(enumerate(text.text.split("\n"), text.line_start))
    versions = await api.file_versions.fn(subject.context, path_segment(id))
    return subject.page(
        "file.html",
        file=file,
        text=text,
        lines=lines,
        versions=versions.data,
        hit=range(line or 0, (end or line or 0) + 1) if line else range(0),
        before=max(text.line_start - LINES, 1) if text is not None else 1,
        at={"id": file.id, **subject.where},
    )


async def _read_text(
    subject: Subject, file: UserFile, page: int | None, line: int | None
) -> UserFileText:
    first_line = None
    if page is None or line is not None:
        first_line = max((line or 1) - LINES_BEFORE, 1)
    wanted_page = page if first_line is None else None
    file_text: UserFileText = await api.file_text.fn(
        subject.context, path_segment(file.id), wanted_page, first_line, LINES
    )
    return file_text


@get("/user/file/content")
async def file_content(subject: AboutUser, id: FromQuery[str]) -> Stream:
    """Send the bytes of a file, which the browser saves and does not show."""
    stream: Stream = await api.file_content.fn(subject.context, path_segment(id))
    return stream


@post("/user/file/delete", status_code=200)
async def delete_file(subject: AboutUser) -> Redirect:
    ident = subject.visitor.field("id")
    await api.delete_file.fn(subject.context, path_segment(ident))
    return go_to(link("/user/files", **subject.where))


ROUTES = (files_page, upload_file, file_page, file_content, delete_file)
