"""Calls to a model that no client waits for: the memory's `Envoy` over the gateway's own upstreams.

The model is `memory.summarizer`, else the conversation's own. With managed keys the provider's key pays; in own-key mode the
tenant's credential does, which is held in this process alone: where there is none, the job waits for the tenant's next request.
Each call leaves a usage record under `background/<kind>`, with the tenant and the user and no key; no key's limits count it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from gateway.booking import billed
from gateway.choice import Choice
from gateway.embedding import Credentials
from gateway.errors import GatewayError, UpstreamRefused
from gateway.forward import Forwarder
from gateway.identity import Principal
from gateway.metering import Meter, guessed
from gateway.refusals import code_of, is_overflow
from gateway.routing import Router
from gateway.settings import Settings
from gateway.usage import Record, UsageLog
from gateway.wire.chat import Json
from memory.errors import Postponed, TooLong
from memory.jobs.errand import Errand

CALL_SECONDS = 110.0  # below a job's lease


@dataclass(frozen=True, slots=True)
class Unattended:
    """Made anew by a reload."""

    settings: Settings
    router: Router
    choice: Choice
    credentials: Credentials
    usage: UsageLog

    async def __call__(self, errand: Errand, messages: Sequence[Json], max_tokens: int) -> Json:
        own = self.settings.mode == "own-key"
        authorization = self.credentials.get(errand.tenant) if own else None
        if own and authorization is None:
            raise Postponed("no request of the tenant has brought a credential since the start")
        name = self.settings.memory.summarizer or errand.model
        route = self.router.route(name, Principal("", "background"))
        body: Json = {"model": name, "messages": list(messages), "max_tokens": max_tokens}
        if errand.tools:
            body["tools"] = list(errand.tools)
        meter = Meter(guessed(len(msgspec.json.encode(body))))
        forward = Forwarder(
            route,
            self.choice,
            [],
            authorization,
            not own,
            errand.tenant if own else "",
            retries=self.settings.routing.retries,
            deadline=asyncio.get_running_loop().time() + CALL_SECONDS,
            meter=meter,
        )
        started, record = (
            time.perf_counter(),
            Record(
                f"bg_{secrets.token_hex(8)}",
                time.time(),
                errand.tenant,
                errand.user,
                "",
                name,
                "",
                f"background/{errand.kind}",
                "off",
                0.0,
                200,
            ),
        )
        try:
            return await forward.message(body)
        except GatewayError as e:
            record.status, record.code = e.status, e.code or code_of(e)
            if own and isinstance(e, UpstreamRefused) and e.status in (401, 403):
                self.credentials.drop(errand.tenant, authorization)
                raise Postponed("the provider refused the tenant's credential") from e
            if isinstance(e, UpstreamRefused) and is_overflow(e):
                raise TooLong(f"the prompt passes the window of {name!r}") from e
            raise
        except (msgspec.DecodeError, KeyError, IndexError, TypeError):
            record.status, record.code = 502, "malformed_completion"
            raise
        except asyncio.CancelledError:
            record.status, record.code = 499, "stopped"
            raise
        finally:
            bill = meter.bill()
            self.usage.add(billed(record, forward, replace(bill, hidden=bill.tokens), started))
