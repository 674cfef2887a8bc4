"""The turn: compose, then repeat {forward, intercept, execute}, then record."""
