"""Messages, how they are told apart by hashes, and how a history is recognised again. Pure."""
