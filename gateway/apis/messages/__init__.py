"""Anthropic's Messages API: how requests are composed, replies masked, rounds kept."""
