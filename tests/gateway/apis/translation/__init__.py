"""Requests and replies between formats."""
