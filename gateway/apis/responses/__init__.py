"""OpenAI's Responses API: how requests are composed, replies masked, rounds kept."""
