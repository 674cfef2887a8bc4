"""One chat completion with memory: the endpoint, the turn, and the interceptor of memory calls.

May import everything but `server`, `app` and `cli`; where memory is off it hands the request to
`relay`.
"""
