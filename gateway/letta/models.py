"""Models by Letta's names, `provider/model`, and their lists."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.settings import Settings
from gateway.errors import Forbidden, UnknownModel
from gateway.letta.call import LettaCall
from gateway.letta.errors import Unprocessable
from gateway.letta.route import LettaRoute
from gateway.relay.endpoint import upstream_models
from gateway.routing.router import Router, is_model_allowed
from gateway.wire.chat import Json

# The first parts of names that Letta's own server had.
PROVIDERS = frozenset(
    """
    anthropic azure baseten bedrock cerebras chatgpt_oauth deepseek fireworks google_ai
    google_vertex groq hugging-face letta llamacpp lmstudio lmstudio_openai minimax mistral
    moonshot moonshot_coding ollama openai openrouter sglang together vllm xai zai zai_coding
    """.split()  # noqa: SIM905
)
# What each model is called like here.
ENDPOINT = "openai"


def resolve(router: Router, settings: Settings, name: str) -> str:
    """Return the model that a name of Letta's means here. Raises UnknownModel."""
    for candidate in _candidates(router, settings, name):
        return candidate
    raise UnknownModel(
        f"The model {name[:80]!r} is not served here. `models.list()` names those that are.",
        param="model",
    )


def _candidates(router: Router, settings: Settings, name: str) -> Iterator[str]:
    """Yield the names that serve it, the best first."""
    provider, slash, model = name.partition("/")
    if _is_exact(settings, name):
        yield name
    if slash and model:
        if _is_exact(settings, model):
            yield model
        model_entry = router.find(model)
        if model_entry is not None:
            at = [target.provider for target in model_entry[1].targets]
        else:
            at = []
        if provider in at or (at and provider in PROVIDERS):
            yield model
    if router.find(name) is not None:
        yield name


def _is_exact(settings: Settings, name: str) -> bool:
    return name in settings.models and not name.endswith("*")


def served_model(call: LettaCall, name: str) -> str:
    """Return the model that an agent is to have. name: as it was given, "" for none.

    Raises UnknownModel, Forbidden; Unprocessable where none is given.
    """
    settings = call.gateway.settings
    router = call.gateway.router
    requested_name = name or settings.server.letta_model
    if not requested_name:
        raise Unprocessable(
            "`model` is missing: name the model that answers, or set server.letta_model.",
            param="model",
        )
    model = resolve(router, settings, requested_name)
    if not is_model_allowed(call.principal, model):
        raise Forbidden(
            f"This key may not call the model {model!r}. It may call: "
            f"{', '.join(call.principal.models)}.",
            code="model_not_allowed",
            param="model",
        )
    return model


def window_of(router: Router, name: str) -> int:
    """Return the tokens of a model's context; 0 where they are not known."""
    model_entry = router.find(name)
    if model_entry is not None:
        targets = router.targets_of(name, model_entry[1])
    else:
        targets = ()
    if targets:
        return targets[0].window or 0
    return 0


async def models(call: LettaCall) -> list[Json]:
    """List the models that this key may call."""
    gateway = call.gateway
    principal = call.principal
    upstream_list = await upstream_models(gateway, principal)
    names = dict.fromkeys(
        [*gateway.router.names(principal), *(str(m["id"]) for m in upstream_list)]
    )
    return [_model(call, name) for name in names if name and is_model_allowed(principal, name)]


def _model(call: LettaCall, name: str) -> Json:
    router = call.gateway.router
    model_entry = router.find(name)
    window = window_of(router, name)
    return {
        "handle": name,
        "name": name,
        "display_name": name,
        "model": name,
        "model_type": "llm",
        "model_endpoint_type": ENDPOINT,
        "provider_type": ENDPOINT,
        "provider_name": model_entry[1].targets[0].provider
        if model_entry is not None
        else ENDPOINT,
        "context_window": window,
        "max_context_window": window,
    }


async def embeddings(call: LettaCall) -> list[Json]:
    """List what search by meaning uses here; nothing where words alone are searched."""
    name = call.gateway.settings.memory.embedder
    if name == "none":
        return []
    return [
        {
            "handle": name,
            "name": name,
            "display_name": name,
            "embedding_model": name,
            "embedding_dim": 0,
            "embedding_endpoint_type": ENDPOINT,
            "provider_name": "mnemogate",
            "provider_type": ENDPOINT,
            "model_type": "embedding",
        }
    ]


ROUTES = (
    LettaRoute("GET", "models", models, "The models that agents may have", of_tenant=False),
    LettaRoute("GET", "models/embedding", embeddings, "The embedder", of_tenant=False),
)
