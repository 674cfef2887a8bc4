"""Postgres: its connections, driver, search index, lease and maintenance."""
