"""What a managed key reaches on the relay: paths that keep nothing, those of its `paths`, and its
models alone. Pure.

Behind managed keys all tenants share the provider's account. What one of them stored there (files,
batches, threads, stored responses, ...) is open to whoever may call these paths, so the operator
says who may.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import pairwise
from urllib.parse import parse_qsl, unquote_plus

from gateway.auth.authenticator import Principal
from gateway.errors import BadRequest, Forbidden, ResourceNotFound
from gateway.http.paths import folded_segments
from gateway.routing.router import is_model_allowed
from gateway.wire.model_field import model_for_certain, model_of

# Asked by POST, and answered out of the request alone. A path that is not here needs `keys.paths`.
STATELESS = frozenset(
    {
        "/chat/completions",
        "/completions",
        "/edits",
        "/infill",
        "/fim/completions",
        "/complete",
        "/responses",
        "/responses/input_tokens",
        "/responses/compact",
        "/messages",
        "/messages/count_tokens",
        "/chat/moderations",
        "/moderations",
        "/embeddings",
        "/rerank",
        "/score",
        "/classify",
        "/classifications",
        "/pooling",
        "/tokenize",
        "/detokenize",
        "/ocr",
        "/apply-template",
        "/audio/speech",
        "/audio/transcriptions",
        "/audio/translations",
        "/images/generations",
        "/images/edits",
        "/images/variations",
    }
)
READING = ("GET", "HEAD", "OPTIONS", "DELETE")
# What a model's name stands behind in a path.
NAMING = ("models", "engines", "deployments")
QUERY_FIELDS = 100


def folded_path(path: str) -> str:
    """Return a canonical path below `/v1` as the most lenient server reads it.

    Raises ResourceNotFound, see `folded_segments`.
    """
    return "/" + "/".join(folded_segments(path))


def check_path(principal: Principal, method: str, path: str) -> None:
    """Check that a key reaches a path. path: see `folded_path`.

    Raises Forbidden, and ResourceNotFound for one that it reaches in other capitals.
    """
    if principal.paths is None or _reaches(principal, method, path):
        return
    if _reaches(principal, method, path.lower()):
        raise ResourceNotFound(f"There is nothing at {path[:200]!r}.")
    raise Forbidden(
        f"The key {principal.key!r} may not {method} {f'/v1{path}'[:200]!r}: all keys share the "
        "provider's account, and what is stored there is for keys whose `paths` list it. The "
        'operator can add it there, such as "/v1/files*".',
        code="path_not_allowed",
    )


def _reaches(principal: Principal, method: str, path: str) -> bool:
    if method == "POST" and path in STATELESS:
        return True
    return any(fnmatchcase(f"/v1{path}", pattern) for pattern in principal.paths or ())


def model_asked(
    principal: Principal, method: str, path: str, query: str, body: tuple[bytes, bytes]
) -> str | None:
    """Return the model that a request is for, None if it names none.

    For a limited key no server can read another model out of the request. body: with its content
    type. Raises BadRequest, Forbidden.
    """
    data, content_type = body
    if not principal.limited:
        if data:
            return model_of(data, content_type)
        return None
    body_model = None
    if data:
        body_model = model_for_certain(data, content_type)
    path_models = _models_in_path(principal, path)
    query_models = _models_in_query(query)
    names = {*path_models, *query_models, *([body_model] if body_model else ())}
    if len(names) > 1:
        raise BadRequest(
            "The request names several models, "
            f"{', '.join(repr(n[:60]) for n in sorted(names))}: name one.",
            param="model",
        )
    # A query is for servers that look at it: where there is a body, another may take its model from
    # elsewhere.
    if not (body_model or path_models or (query_models and not data)) and (
        data or method not in READING
    ):
        raise Forbidden(
            f"The key {principal.key!r} is limited in its models or its budget, so it may only "
            "send what names its `model`; this request "
            "names none. Name it in the body, or use a key without these limits.",
            code="model_not_allowed",
            param="model",
        )
    return names.pop() if names else None


def _models_in_path(principal: Principal, path: str) -> set[str]:
    """Return the models that a path names."""
    parts = path.split("/")
    model_names = {name for before, name in pairwise(parts) if before.lower() in NAMING}
    # A method may stand behind the name (`models/NAME:generateContent`), and a name may hold a
    # colon.
    return {
        name if is_model_allowed(principal, name) else name.rpartition(":")[0] or name
        for name in model_names
    }


def _models_in_query(query: str) -> set[str]:
    """Return the models that a query names. Raises BadRequest."""
    try:
        fields = parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS)
    except ValueError as e:
        raise BadRequest(f"The query has more than {QUERY_FIELDS} fields. Send fewer.") from e
    return {value for name, value in fields if unquote_plus(name).strip().lower() == "model"}
