"""Keep the interpreter's searches for garbage short: nobody is served while one goes on.

A search goes through all objects that may be garbage, which takes about a millisecond for 2,000 of
them. So what lives as long as the process is taken out, and what is young is aged in small
portions.
"""

from __future__ import annotations

import gc

# New objects before the youngest are searched; such searches before the next generation is, and of
# those before all are. The first two bound a portion to 30,000 objects.
THRESHOLDS = (5_000, 5, 400)


def begin_searches() -> None:
    """Search for garbage from now on, but not in what was made until now."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()


def keep_for_good() -> None:
    """Take what was made until now out of the searches, in a process that `begin_searches` began.

    For moments at which much was made that stays. What is in use at that moment and becomes a
    circle of garbage later is never freed, which is little.
    """
    # To count what is frozen takes as long as a search.
    if gc.get_threshold() == THRESHOLDS:
        gc.freeze()
