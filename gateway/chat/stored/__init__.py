"""Stored objects of the Responses API, here or at the provider: their owners, requests on them."""
