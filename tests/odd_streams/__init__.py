"""Streams as odd as servers really send them, made from answers that are known: see `play`."""
