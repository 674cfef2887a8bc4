"""What a key may use: requests, tokens, concurrency and budget, counted here or in Redis.

May import `redis_client`, `config` and `errors`.
"""
