"""The bundled model: a small rule-based stand-in for a real one, for the demo and for tests without a provider.

It is no language model and says so. It speaks the OpenAI API, sees a request as a model would see it, and really calls
the memory tools it is offered. checks -> rules (seen, facts, guess) -> wire -> server; only `server` knows of sockets.
"""
