"""Requests in one format at servers of another."""
