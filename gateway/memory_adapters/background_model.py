"""Model calls that no client waits for, over the gateway's own upstreams.

The model is `memory.summarizer`, otherwise the conversation's own. With managed keys the provider's
key pays; in own-key mode the tenant's credential does, which is only kept in memory: without one,
the job waits for the tenant's next request. Each call leaves a usage record under
`background/<kind>`, with the tenant and the user but no key, and counts against no key's limits.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from gateway.accounting import bill_record
from gateway.auth.authenticator import Principal
from gateway.auth.credential_cache import CredentialCache
from gateway.config.settings import Settings
from gateway.errors import GatewayError, UpstreamRefused
from gateway.memory_adapters.model_answer import ask_model
from gateway.routing.caller import Caller
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.failures import code_of, is_overflow
from gateway.routing.router import Router
from gateway.routing.selector import TargetSelector
from gateway.usage.log import UsageLog, UsageRecord
from gateway.usage.meter import Meter, guess_tokens
from gateway.wire.chat import Json
from memory import BackgroundCall, Postponed, TooLong, Unusable

# Below a job's lease.
CALL_SECONDS = 110.0


@dataclass(frozen=True, slots=True)
class BackgroundModelClient:
    """Calls models for background jobs. A reload creates another one."""

    settings: Settings
    router: Router
    choice: TargetSelector
    credentials: CredentialCache
    usage: UsageLog

    async def __call__(
        self, call: BackgroundCall, messages: Sequence[Json], max_tokens: int
    ) -> Json:
        name = self._model_of(call)
        body: Json = {"model": name, "messages": list(messages)}
        if call.tools:
            body["tools"] = list(call.tools)
        forward = self._dispatcher(call, body)
        started_at = time.perf_counter()
        record = _new_record(call, name)
        try:
            return await ask_model(forward, self.router, body, max_tokens)
        except GatewayError as e:
            record.status = e.status
            record.code = e.code or code_of(e)
            self._raise_if_known(e, call, forward.caller)
            raise
        except Unusable:
            record.status = 502
            record.code = "cut_completion"
            raise
        except (msgspec.DecodeError, KeyError, IndexError, TypeError):
            record.status = 502
            record.code = "malformed_completion"
            raise
        except asyncio.CancelledError:
            record.status = 499
            record.code = "stopped"
            raise
        finally:
            bill = forward.meter.bill()
            self.usage.add(
                bill_record(record, forward, replace(bill, hidden=bill.tokens), started_at)
            )

    def _model_of(self, call: BackgroundCall) -> str:
        return call.own_model or self.settings.memory.summarizer or call.model

    def _dispatcher(self, call: BackgroundCall, body: Json) -> Dispatcher:
        """Return the dispatcher of a call.

        Raises Postponed if there is no credential for it.
        """
        is_own_key = self.settings.mode == "own-key"
        authorization = None
        if is_own_key:
            authorization = self.credentials.get(call.tenant)
        if is_own_key and authorization is None:
            raise Postponed("no request of the tenant has brought a credential since the start")
        return Dispatcher(
            self.router.route(body["model"], Principal("", "background")),
            self.choice,
            Caller(
                [],
                authorization,
                not is_own_key,
                *((call.tenant, call.tenant) if is_own_key else ()),
            ),
            retries=self.settings.routing.retries,
            deadline=asyncio.get_running_loop().time() + CALL_SECONDS,
            meter=Meter(guess_tokens(len(msgspec.json.encode(body)))),
        )

    def _raise_if_known(self, error: GatewayError, call: BackgroundCall, caller: Caller) -> None:
        """Raise Postponed or TooLong for errors that the memory can handle."""
        if not isinstance(error, UpstreamRefused):
            return
        if not caller.managed and error.status in (401, 403):
            self.credentials.drop(call.tenant, caller.authorization)
            raise Postponed("the provider refused the tenant's credential") from error
        if is_overflow(error):
            name = self._model_of(call)
            raise TooLong(f"the prompt exceeds the context window of {name!r}") from error


def _new_record(call: BackgroundCall, model: str) -> UsageRecord:
    """Return the usage record of a call that starts now."""
    return UsageRecord(
        f"bg_{secrets.token_hex(8)}",
        time.time(),
        call.tenant,
        call.user,
        "",
        model,
        "",
        f"background/{call.kind}",
        "off",
        0.0,
        200,
    )
