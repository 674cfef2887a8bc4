"""Chat completions as OpenAI's Responses API says them, there and back. Pure."""
