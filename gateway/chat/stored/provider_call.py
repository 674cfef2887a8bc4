"""A question to a provider about stored objects, outside of a turn."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from gateway.auth.authenticator import Principal
from gateway.errors import UpstreamRefused, UpstreamTimeout, UpstreamUnreachable
from gateway.http.json_thread import run_by_weight
from gateway.http.paths import upstream_path
from gateway.pipeline import new_dispatcher
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.router import Route, Target
from gateway.state import GatewayState
from gateway.upstream.base import ERROR_BYTES, UpstreamRequest, UpstreamResponse
from gateway.upstream.bridged import NO_PATH, is_path_missing
from gateway.wire.chat import Json, decode
from gateway.wire.headers import client_headers, upstream_headers

JSON = b"application/json"
# Of a stored object, or a page of a list.
OBJECT_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """Who asks which provider. headers: of the client's request."""

    gateway: GatewayState
    principal: Principal
    headers: dict[bytes, bytes]
    target: Target

    async def open(
        self, method: str, *names: str, query: str = "", content: bytes | None = None
    ) -> UpstreamResponse:
        """Return the provider's answer, whatever it is, as soon as it begins.

        names: segments of the path, as they are. Raises UpstreamUnreachable, ResourceNotFound.
        """
        path = upstream_path(*names, query=query)
        target = self.target
        kind = JSON if content is not None else None
        caller = self._dispatcher().caller
        headers = upstream_headers(caller.headers, caller.credential(target), kind)
        return await target.upstream.send(UpstreamRequest(path, content, headers, method))

    @property
    def has_credential(self) -> bool:
        """Whether there is a key to ask with, the client's or the provider's own."""
        return self._dispatcher().caller.credential(self.target) is not None

    def _dispatcher(self) -> Dispatcher:
        route = Route(((self.target,),), self.target.model)
        return new_dispatcher(self.gateway, route, self.headers, self.principal)

    async def ask(
        self, method: str, *names: str, query: str = "", content: bytes | None = None
    ) -> Json:
        """Ask for what lies at these segments.

        Raises UpstreamRefused with the provider's own answer, UpstreamUnreachable.
        """
        try:
            async with asyncio.timeout(self.target.settings.timeouts.total):
                incoming = await self.open(method, *names, query=query, content=content)
                is_refused = not 200 <= incoming.status < 300
                data = await incoming.read(ERROR_BYTES if is_refused else OBJECT_BYTES + 1)
                await incoming.close()
        except TimeoutError as e:
            raise UpstreamTimeout("The provider did not answer in time. Try again.") from e
        if is_refused:
            answer_headers = client_headers(incoming.headers)
            raise UpstreamRefused(incoming.status, data, answer_headers)
        if len(data) > OBJECT_BYTES:
            raise UpstreamUnreachable(
                f"The provider's answer has more than {OBJECT_BYTES >> 20} MiB, the most that is "
                "read of a stored object. Ask for less, such as a smaller `limit`."
            )
        try:
            answer = await run_by_weight(data, decode, data or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            raise UpstreamUnreachable(
                f"The provider's answer cannot be read as JSON: {str(e)[:200]}."
            ) from e
        if isinstance(answer, dict):
            return answer
        return {}

    async def ask_if_there(self, name: str, content: bytes) -> Json | None:
        """Post to a path; None if the provider does not have it. Raises as `ask` does."""
        try:
            return await self.ask("POST", name, content=content)
        except UpstreamRefused as e:
            if e.status in NO_PATH and is_path_missing(e.status, e.content):
                return None
            raise
