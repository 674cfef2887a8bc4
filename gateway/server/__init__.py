"""The HTTP server around the application: middleware, routes, error responses, start-up and
shutdown.

May import everything but `app` and `cli`.
"""
