"""Words without which a fact says the same: articles and intensifiers. Nothing else may be ignored.

No word that could be a negation, a subject, a number or a time belongs here.
"""

from __future__ import annotations

FILLERS = {
    "en": "a an the s am is are really very truly actually just also too quite simply indeed",
    "de": "der die das den dem des ein eine einen einem einer eines auch ja doch mal halt "
    "eben wirklich sehr eigentlich übrigens",
    "fr": "le la les l un une des vraiment très aussi également",
    "es": "el la los las un una unos unas muy también realmente además",
    "pt": "o a os as um uma uns umas muito também realmente",
    "ru": "очень тоже также действительно правда",
    "hi": "बहुत भी वाकई सच में",
    "ar": "جدا جداً أيضا أيضاً حقا حقاً",
}
