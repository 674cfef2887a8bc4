"""Complete the generated OpenAPI schema: errors, authentication, chat completions. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from litestar import Request, Router
from litestar.openapi.plugins import JsonRenderPlugin

Json = dict[str, Any]
# No key.
FREE = ("/health", "/ready")
ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
# An upstream's own error is passed on verbatim, so its shape is not promised.
UPSTREAM_ERROR: Json = {
    "description": "An error, the gateway's or the upstream's own",
    "content": {"application/json": {"schema": {}}},
}
REFUSAL: Json = {
    "description": "What was wrong, and what to do",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}
CHAT: Json = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["model", "messages"],
                "properties": {
                    "model": {"type": "string", "minLength": 1},
                    "stream": {"type": ["boolean", "null"]},
                    "user": {"type": ["string", "null"], "maxLength": 1024},
                    "tools": {"type": ["array", "null"]},
                    "messages": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "required": ["role"],
                            "properties": {"role": {"type": "string"}},
                        },
                    },
                },
            }
        }
    },
}
CHAT_ANSWER: Json = {
    "description": "The completion, or its stream",
    "content": {
        "application/json": {"schema": {"type": "object"}},
        "text/event-stream": {"schema": {}},
    },
}
# Paths with memory, and what they take; their errors have the shapes of their own APIs.
TURNS: dict[str, Json] = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": {},
    "/v1/messages": CHAT,
    "/v1/messages/count_tokens": CHAT,
}

MODEL: Json = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "model"},
        "created": {"type": "integer"},
        "owned_by": {"type": "string"},
    },
}
MODELS: Json = {
    "description": "The configured models, and the upstream's",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["object", "data"],
                "properties": {
                    "object": {"const": "list"},
                    "data": {"type": "array", "items": MODEL},
                },
            }
        }
    },
}

LETTA_REFUSAL: Json = {
    "description": "What was wrong, and what to do",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["detail", "error"],
                "properties": {
                    "detail": {"type": "string"},
                    "error": ERROR["properties"]["error"],
                },
            }
        }
    },
}

RPC_ID: Json = {"type": ["string", "integer"]}
RPC_ERROR: Json = {
    "type": "object",
    "required": ["jsonrpc", "id", "error"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer", "null"]},
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
        },
    },
}
RPC_RESULT: Json = {
    "type": "object",
    "required": ["jsonrpc", "id", "result"],
    "properties": {"jsonrpc": {"const": "2.0"}, "id": RPC_ID, "result": {"type": "object"}},
}
MCP_MESSAGE: Json = {
    "summary": "One message of the Model Context Protocol, and its answer",
    "tags": ["mcp"],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["jsonrpc", "method"],
                    "properties": {
                        "jsonrpc": {"const": "2.0"},
                        "id": RPC_ID,
                        "method": {"type": "string", "minLength": 1},
                        "params": {"type": "object"},
                    },
                }
            }
        },
    },
    "responses": {
        "200": {
            "description": "The result, or an error of the method",
            "content": {"application/json": {"schema": {"anyOf": [RPC_RESULT, RPC_ERROR]}}},
        },
        "202": {"description": "Taken: a notification, which has no answer"},
        "default": {
            "description": "What was wrong, and what to do",
            "content": {"application/json": {"schema": RPC_ERROR}},
        },
    },
    "security": [{"key": []}],
}
AGENT: Json = {"name": "agent", "in": "query", "schema": {"type": "string"}}
PROJECT: Json = {**AGENT, "name": "project"}
USER: Json = {"name": "user", "in": "path", "required": True, "schema": {"type": "string"}}
# The door of MCP clients, which answers before the framework.
MCP_PATHS: Json = {
    "/mcp": {"post": {**MCP_MESSAGE, "parameters": [AGENT, PROJECT]}},
    "/u/{user}/mcp": {"post": {**MCP_MESSAGE, "parameters": [USER, AGENT, PROJECT]}},
}


def letta_paths(routes: Iterable[Any]) -> Json:
    """Return the paths of the Letta door. routes: see `gateway.letta.route`."""
    paths: Json = {}
    for route in routes:
        names = [f"id{number or ''}" for number in range(route.path.count("*"))]
        path = "/letta/v1/" + route.path
        for name in names:
            path = path.replace("*", f"{{{name}}}", 1)
        streams = "/messages" in route.path and route.method == "POST"
        kinds = ("application/json", *(("text/event-stream",) if streams else ()))
        operation: Json = {
            "summary": route.summary,
            "tags": ["letta"],
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in names
            ],
            "responses": {
                "200": {"description": "As Letta has it", "content": {k: {} for k in kinds}},
                "default": LETTA_REFUSAL,
            },
            "security": [{"key": []}],
        }
        if route.method in ("POST", "PUT", "PATCH"):
            kind = "application/json"
            if route.path.endswith("import"):
                kind = "multipart/form-data"
            body = {"content": {kind: {"schema": {"type": "object"}}}}
            operation["requestBody"] = body
        paths.setdefault(path, {})[route.method.lower()] = operation
    return paths


def complete_schema(schema: Json, letta: Json | None = None) -> Json:
    """Return a completed copy of the schema. letta: the paths of Letta clients."""
    components = schema.get("components", {})
    paths = {
        path: {method: _operation(path, operation) for method, operation in item.items()}
        for path, item in schema["paths"].items()
    }
    for path, request_body in TURNS.items():
        turn = {"responses": {"200": CHAT_ANSWER, "default": UPSTREAM_ERROR}}
        paths[path]["post"] |= turn | ({"requestBody": request_body} if request_body else {})
    paths["/v1/models"]["get"]["responses"]["200"] = MODELS
    schemas = {**components.get("schemas", {}), "Error": ERROR}
    schemes = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        **schema,
        "paths": {**paths, **MCP_PATHS, **(letta or {})},
        "components": {**components, "schemas": schemas, "securitySchemes": schemes},
    }


def _operation(path: str, operation: Json) -> Json:
    answers = {
        status: answer for status, answer in operation["responses"].items() if status != "400"
    }
    if path in FREE:
        return {
            **operation,
            "responses": {**answers, **({"503": answers["200"]} if path == "/ready" else {})},
        }
    return {**operation, "responses": {**answers, "default": REFUSAL}, "security": [{"key": []}]}


class SchemaRenderer(JsonRenderPlugin):
    """The OpenAPI schema and nothing else.

    By default Litestar answers unknown paths below it with an HTML page.
    """

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        # Most gateways never meet such a client.
        from gateway.letta.door import ROUTES

        letta = request.app.state.gateway.settings.server.letta
        return super().render(
            request, complete_schema(openapi_schema, letta_paths(ROUTES) if letta else None)
        )

    def receive_router(self, router: Router) -> None:
        router.routes = [r for r in router.routes if "{" not in r.path]
