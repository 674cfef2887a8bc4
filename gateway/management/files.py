"""A user's files over HTTP: upload, list, read, search and delete."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from litestar import Response, delete, get, put
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from gateway.config.file_limits import FileToolLimits
from gateway.config.file_tools import find_file_limits
from gateway.errors import BadRequest, RequestConflict
from gateway.http.paths import segment
from gateway.http.request_body import declared_length, is_plain, stream_body
from gateway.management.context import AtDesk, UserContext
from gateway.management.file_schemas import (
    UserFile,
    UserFileHit,
    UserFileText,
    UserFileVersion,
    describe_file,
    describe_hit,
    describe_text,
    describe_version,
)
from gateway.management.schemas import Gone, Page
from memory import (
    FileLimits,
    FileQuery,
    FileSearch,
    IncomingFile,
    StoredFile,
    TextQuery,
    management,
)

OCTETS = "application/octet-stream"
# The bytes may be a page with scripts: no browser shows them as one.
CONTENT_HEADERS = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox"}
HitLimit = Annotated[int, QueryParameter(ge=1, le=100)]
LineCount = Annotated[int, QueryParameter(ge=1, le=2000)]


class TakingBytes(Operation):
    """An operation whose body is the bytes of a file."""

    def __init__(self, **members: Any) -> None:
        body = RequestBody({OCTETS: OpenAPIMediaType()}, required=True)
        super().__init__(**{**members, "request_body": body})


def limits_of(desk: UserContext) -> FileToolLimits:
    """Return what a user may keep. Raises RequestConflict where files are off."""
    limits = find_file_limits(desk.caller.gateway.settings)
    if limits is None:
        raise RequestConflict(
            'No files are kept here. Add an entry with kind = "files" to [tools] of the '
            "configuration.",
            code="files_off",
        )
    return limits


@put(
    "/users/{user:str}/files/{file:str}",
    status_code=202,
    summary="Upload a file: 202 for a new version, which is then read; 200 for the same bytes",
    operation_class=TakingBytes,
)
async def put_file(desk: AtDesk, file: FromPath[str]) -> Response[UserFile]:
    stored, is_new = await store_file(desk, segment(file))
    return Response(describe_file(stored), status_code=202 if is_new else 200)


async def store_file(desk: UserContext, name: str) -> tuple[StoredFile, bool]:
    """Store the request's body as a file; return it, and whether it is new or changed."""
    request = desk.caller.request
    headers = dict(request.scope["headers"])
    size = declared_length(headers) if is_plain(headers) else 0
    return await store_incoming(
        desk, IncomingFile(name, size, stream_body(request.receive, headers))
    )


async def store_incoming(desk: UserContext, incoming: IncomingFile) -> tuple[StoredFile, bool]:
    """Store a file within the limits; return it, and whether it is new or changed."""
    limits = limits_of(desk)
    allowed = FileLimits(limits.max_mib, limits.per_user, limits.quota_mib)
    return await desk.write(
        management.files.receive_file(desk.memory, desk.hand(), incoming, allowed)
    )


@get("/users/{user:str}/files", summary="A user's files, by name")
async def files(desk: AtDesk) -> Page[UserFile]:
    stored = await desk.read(management.files.list_files(desk.memory, desk.scope))
    return Page([describe_file(one) for one in stored])


@get("/users/{user:str}/files/search", summary="Search a user's files by words or definitions")
async def search_files(
    desk: AtDesk,
    q: FromQuery[str] = "",
    file: FromQuery[str] = "",
    kind: FromQuery[str] = "text",
    limit: HitLimit = 10,
) -> Page[UserFileHit]:
    """Search files.

    file: an id or a name. kind: `text`, or `symbol` for definitions in source files by their name.
    """
    if not q.strip():
        raise BadRequest("`q` is empty: say what to search for.", param="q")
    search = FileSearch(desk.memory.db)
    hits = await desk.read(search.search(desk.scope, FileQuery(q, file, kind, limit)))
    return Page([describe_hit(hit) for hit in hits])


@get("/users/{user:str}/files/{file:str}", summary="One file, by id or name")
async def file(desk: AtDesk, file: FromPath[str]) -> UserFile:
    return describe_file(await find_file(desk, file))


async def find_file(desk: UserContext, file: str) -> StoredFile:
    """Return a file. Raises ResourceNotFound."""
    return await desk.read(management.files.get_file(desk.memory, desk.scope, segment(file)))


@get("/users/{user:str}/files/{file:str}/versions", summary="The versions of a file, newest first")
async def file_versions(desk: AtDesk, file: FromPath[str]) -> Page[UserFileVersion]:
    versions = await desk.read(
        management.files.list_versions(desk.memory, desk.scope, segment(file))
    )
    return Page([describe_version(one) for one in versions])


@get(
    "/users/{user:str}/files/{file:str}/content",
    media_type=OCTETS,
    summary="The bytes of a file as they came",
)
async def file_content(desk: AtDesk, file: FromPath[str]) -> Stream:
    stored = await find_file(desk, file)
    headers = {
        **CONTENT_HEADERS,
        "content-disposition": f"attachment; filename*=UTF-8''{quote(stored.name, safe='')}",
        "content-length": str(stored.bytes),
    }
    pieces = management.files.read_bytes(desk.memory, stored)
    return Stream(pieces, media_type=OCTETS, headers=headers)


@get(
    "/users/{user:str}/files/{file:str}/text", summary="The text of a file, from a page or line on"
)
async def file_text(
    desk: AtDesk,
    file: FromPath[str],
    page: FromQuery[int | None] = None,
    line: FromQuery[int | None] = None,
    lines: LineCount = 100,
) -> UserFileText:
    """Return lines of a file. Lines count from 1, over all pages."""
    search = FileSearch(desk.memory.db)
    wanted = TextQuery(segment(file), page, line, lines)
    return describe_text(await desk.read(search.open(desk.scope, wanted)))


@delete("/users/{user:str}/files/{file:str}", status_code=200, summary="Delete a file")
async def delete_file(desk: AtDesk, file: FromPath[str]) -> Gone:
    ident = await desk.write(management.files.delete_file(desk.memory, desk.hand(), segment(file)))
    return Gone(ident, "file")


ROUTES = (
    put_file,
    files,
    search_files,
    file,
    file_versions,
    file_content,
    file_text,
    delete_file,
)
