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
from gateway.management.context import AtUser, UserContext
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


def limits_of(context: UserContext) -> FileToolLimits:
    """Return what a user may keep. Raises RequestConflict where files are off."""
    limits = find_file_limits(context.caller.gateway.settings)
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
async def put_file(context: AtUser, file: FromPath[str]) -> Response[UserFile]:
    stored_file, is_new = await store_file(context, segment(file))
    return Response(describe_file(stored_file), status_code=202 if is_new else 200)


async def store_file(context: UserContext, name: str) -> tuple[StoredFile, bool]:
    """Store the request's body as a file; return it, and whether it is new or changed."""
    request = context.caller.request
    headers = dict(request.scope["headers"])
    size = 0
    if is_plain(headers):
        size = declared_length(headers)
    return await store_incoming(
        context, IncomingFile(name, size, stream_body(request.receive, headers))
    )


async def store_incoming(context: UserContext, incoming: IncomingFile) -> tuple[StoredFile, bool]:
    """Store a file within the limits; return it, and whether it is new or changed."""
    limits = limits_of(context)
    file_limits = FileLimits(limits.max_mib, limits.per_user, limits.quota_mib)
    return await context.write(
        management.files.receive_file(context.memory, context.hand(), incoming, file_limits)
    )


@get("/users/{user:str}/files", summary="A user's files, by name")
async def files(context: AtUser) -> Page[UserFile]:
    stored_files = await context.read(management.files.list_files(context.memory, context.scope))
    return Page([describe_file(stored_file) for stored_file in stored_files])


@get("/users/{user:str}/files/search", summary="Search a user's files by words or definitions")
async def search_files(
    context: AtUser,
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
    search = FileSearch(context.memory.db)
    hits = await context.read(search.search(context.scope, FileQuery(q, file, kind, limit)))
    return Page([describe_hit(hit) for hit in hits])


@get("/users/{user:str}/files/{file:str}", summary="One file, by id or name")
async def file(context: AtUser, file: FromPath[str]) -> UserFile:
    return describe_file(await find_file(context, file))


async def find_file(context: UserContext, file: str) -> StoredFile:
    """Return a file. Raises ResourceNotFound."""
    return await context.read(
        management.files.get_file(context.memory, context.scope, segment(file))
    )


@get("/users/{user:str}/files/{file:str}/versions", summary="The versions of a file, newest first")
async def file_versions(context: AtUser, file: FromPath[str]) -> Page[UserFileVersion]:
    versions = await context.read(
        management.files.list_versions(context.memory, context.scope, segment(file))
    )
    return Page([describe_version(version) for version in versions])


@get(
    "/users/{user:str}/files/{file:str}/content",
    media_type=OCTETS,
    summary="The bytes of a file as they came",
)
async def file_content(context: AtUser, file: FromPath[str]) -> Stream:
    stored_file = await find_file(context, file)
    headers = {
        **CONTENT_HEADERS,
        "content-disposition": f"attachment; filename*=UTF-8''{quote(stored_file.name, safe='')}",
        "content-length": str(stored_file.bytes),
    }
    parts = management.files.read_bytes(context.memory, stored_file)
    return Stream(parts, media_type=OCTETS, headers=headers)


@get(
    "/users/{user:str}/files/{file:str}/text", summary="The text of a file, from a page or line on"
)
async def file_text(
    context: AtUser,
    file: FromPath[str],
    page: FromQuery[int | None] = None,
    line: FromQuery[int | None] = None,
    lines: LineCount = 100,
) -> UserFileText:
    """Return lines of a file. Lines count from 1, over all pages."""
    search = FileSearch(context.memory.db)
    text_query = TextQuery(segment(file), page, line, lines)
    return describe_text(await context.read(search.open(context.scope, text_query)))


@delete("/users/{user:str}/files/{file:str}", status_code=200, summary="Delete a file")
async def delete_file(context: AtUser, file: FromPath[str]) -> Gone:
    ident = await context.write(
        management.files.delete_file(context.memory, context.hand(), segment(file))
    )
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
