"""From a model's name to the target that answers: routes, selection, cooldowns, retries and
fallback.

May import `usage`, `limits`, `upstream`, `auth` and all below them.
"""
