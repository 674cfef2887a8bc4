"""Chat completions as Anthropic's Messages API says them, there and back. Pure."""
