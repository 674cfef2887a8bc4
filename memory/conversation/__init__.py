"""Messages, their hashes, and how a resent history is recognised. Pure."""
