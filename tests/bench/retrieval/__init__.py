"""How well and how fast the gateway's own search finds what was said."""
