"""The `mnemogate` command. May import everything; nothing imports it."""
