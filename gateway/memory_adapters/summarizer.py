"""The memory's `Complete` port over a request's own upstream and credentials."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.auth.authenticator import Principal
from gateway.errors import UpstreamRefused
from gateway.memory_adapters.model_answer import ask_model
from gateway.routing.caller import Caller
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.failures import is_overflow
from gateway.routing.router import Route
from gateway.state import GatewayState
from gateway.usage.meter import Meter, guess_tokens
from gateway.wire.chat import Json
from memory import TooLong, answer_text


class Summarizer:
    """The memory's `Complete` port over this request's own upstream and credentials."""

    def __init__(
        self, gateway: GatewayState, forward: Dispatcher, model: str, summarizer: str | None = None
    ) -> None:
        """summarizer: the agent's own, None for that of the settings."""
        self._gateway = gateway
        self._forward = forward
        self._model = model
        configured = gateway.settings.memory.summarizer
        if summarizer is None:
            self._summarizer = configured
        else:
            self._summarizer = summarizer

    def _route(self) -> Route:
        name = self._summarizer
        if name:
            return self._gateway.router.route(name, Principal("", "summariser"))
        return self._forward.route

    @property
    def window(self) -> int | None:
        """The smallest context window of the models that may be called, in tokens."""
        windows = self._gateway.windows
        account = self._forward.caller.account
        known_windows = [windows.get(t, account) for t in self._route().targets]
        return min((w for w in known_windows if w is not None), default=None)

    async def __call__(self, messages: Sequence[Json], max_tokens: int) -> str:
        route = self._route()
        before = self._forward
        caller = self._forward.caller
        dispatcher = Dispatcher(
            route,
            before.choice,
            Caller(
                [],
                caller.authorization,
                caller.managed,
                account=caller.account,
                tenant=caller.tenant,
            ),
            retries=1,
            deadline=before.deadline,
            meter=Meter(guess_tokens(sum(len(str(m.get("content"))) for m in messages))),
        )
        before.meter.asides.append(dispatcher.meter)
        try:
            body = {"model": self._model, "messages": list(messages)}
            message = await ask_model(dispatcher, self._gateway.router, body, max_tokens)
        except UpstreamRefused as e:
            if is_overflow(e):
                raise TooLong(f"the prompt exceeds the context window of {self._model!r}") from e
            raise
        return answer_text(message)
