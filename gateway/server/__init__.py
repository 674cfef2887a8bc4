"""The HTTP server around the application: middleware, routes, error responses, lifespan.

May import everything but `app` and `cli`.
"""
