"""An OpenAI-compatible proxy gateway that gives any LLM app a memory.

Layers, from the bottom: errors; storage, wire; config, http, models; auth, redis_client, upstream;
limits, usage; routing; accounting, state; memory_adapters, pipeline; management, relay; chat;
server; app; cli. A package imports only packages of lower layers, and `memory`.
`tests/test_architecture.py` checks this.
"""
