"""Limits of keys: requests, tokens, concurrency and budget, counted here or in Redis.

May import `redis_client`, `config` and `errors`.
"""
