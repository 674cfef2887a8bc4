"""From a model name to the target that answers: routes, selection, cooldowns, retries, fallbacks.

May import `usage`, `limits`, `upstream`, `auth` and all below them.
"""
