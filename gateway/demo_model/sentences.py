"""The English sentences that the stand-in understands: facts about users, and questions. Pure.

A fact has three forms: as the user says it ("I like tea"), as it is stored ("Likes tea"), and as it
is repeated ("you like tea").
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StatedFact:
    """A fact.

    kind: name, likes, dislikes, home, job, asked (to remember); not understood: said (by the user)
    or other.
    """

    kind: str
    subject: str

    @property
    def line(self) -> str:
        """The fact as it is stored."""
        return _STORED[self.kind].format(self.subject)

    @property
    def spoken(self) -> str:
        """The fact as it is repeated to the user."""
        return _TOLD[self.kind].format(to_you(self.subject))


@dataclass(frozen=True, slots=True)
class Question:
    """kind: as a fact's, or about (everything), topic.

    words: what it is about. personal: it is about the user.
    """

    kind: str
    words: tuple[str, ...]
    personal: bool = True


_STORED = {
    "name": "Name: {}",
    "likes": "Likes {}",
    "dislikes": "Dislikes {}",
    "home": "Lives in {}",
    "job": "Works as {}",
    "asked": "Asked to remember: {}",
    "said": "{}",
    "other": "{}",
}
_TOLD = {
    "name": "your name is {}",
    "likes": "you like {}",
    "dislikes": "you do not like {}",
    "home": "you live in {}",
    "job": "you work as {}",
    "asked": "you asked me to remember: {}",
    "said": "you said: {}",
    "other": "{}",
}
SINGLE = ("name", "home", "job")
OPPOSITE = {"likes": "dislikes", "dislikes": "likes"}

_VERY = r"(?:(?:really|also|just|still|absolutely|quite) )*"
_SAID = tuple(
    (kind, re.compile(p, re.IGNORECASE))
    for kind, p in (
        ("name", r"\bmy name(?: is|'s) (.+)"),
        ("name", r"\b(?:I'm|I am) called (.+)"),
        ("name", r"^(?:please |just |you can )*call me (.+)"),
        (
            "dislikes",
            rf"^(?:\w+, )?I {_VERY}(?:(?:don't|do not) "
            rf"{_VERY}(?:like|love|enjoy)|dislike|hate) (.+)",
        ),
        ("likes", rf"^(?:\w+, )?I {_VERY}(?:like|love|enjoy|prefer) (.+)"),
        ("home", r"^(?:\w+, )?I (?:now |currently )?live in (.+)"),
        ("job", r"^(?:\w+, )?I (?:now |currently )?work as (.+)"),
    )
)
_WHO = r"^(?:(?:the )?user (?:really )?)?"
_READ = tuple(
    (kind, re.compile(p, re.IGNORECASE))
    for kind, p in (
        ("asked", r"^asked to remember:\s*(.+)"),
        ("name", r"^(?:(?:the )?user'?s? )?(?:first |full )?name(?: is|:)\s*(.+)"),
        ("dislikes", _WHO + r"(?:dislikes|hates|(?:doesn't|does not) like) (.+)"),
        ("likes", _WHO + r"(?:likes|loves|enjoys|prefers) (.+)"),
        ("home", _WHO + r"lives in (.+)"),
        ("job", _WHO + r"works as (.+)"),
    )
)
_REMEMBER = re.compile(
    r"(?:^|(?:,|\band\b|\bbut\b) +)(?P<polite>(?:(?:can|could|will|would) you )?)(?:please "
    r"|also |always )*"
    r"(?:remember|(?:don't|do not|never) forget)(?: that| this)?:?,? +(?P<what>.+)$",
    re.IGNORECASE | re.DOTALL,
)
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?]+(?!\s|$)[^.!?\n]+)*[.!?]*")
_CLAUSE = re.compile(
    r"(?:,\s*|\s+)(?:and|but)\s+(?=(?:also\s+)?(?:I|I'm|my|call)\b)|,\s+(?=(?:I|my)\b)",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"(?:(?:what|who|where|when)(?:'s)?|whats|which|how|why|do|does|did|is|are|am|have|has|can|could|would|will)\b"
    r"|tell me\b",
    re.IGNORECASE,
)
_KINDS = tuple(
    (kind, re.compile(p, re.IGNORECASE))
    for kind, p in (
        ("asked", r"\b(?:ask|asked|tell|told) you to (?:remember|keep)\b"),
        (
            "about",
            r"\b(?:remember|know) (?:anything |something )?(?:about )?me\b"
            r"|what (?:do )?you (?:remember|know)$|\bremember anything$",
        ),
        ("name", r"\bmy name\b|\bam I called\b|\bwho am I\b|\bwho I am\b"),
        ("dislikes", rf"\bI {_VERY}(?:dislike|hate|(?:not|don't|do not) like)\b|\bdon't I like\b"),
        ("likes", rf"\bI {_VERY}(?:like|love|enjoy|prefer)\b"),
        ("home", r"\bdo I live\b|\bI live\b"),
        ("job", r"\bdo I (?:work|do for)\b|\bmy job\b|\bI work\b"),
    )
)
_ABOUT_USER = re.compile(
    r"\b(?:I|me|my|mine|we|our)\b|\b(?:do|can) you (?:still )?remember\b", re.IGNORECASE
)
_LOOK_UP = re.compile(r"(?:what|who|where|when|which)(?: is| are| was| were|'s)\b", re.IGNORECASE)
_TO_THE_MODEL = re.compile(
    r"(?:can|could|would|will) (?:you|I|we)\b(?! (?:still )?remember)|(?:who|what|how) are you\b",
    re.IGNORECASE,
)
_YOU = {
    "i": "you",
    "i'm": "you are",
    "i've": "you have",
    "i'll": "you will",
    "am": "are",
    "me": "you",
    "my": "your",
    "mine": "yours",
    "myself": "yourself",
}
_STOP = frozenset(
    re.findall(
        r"\S+",
        """
    a about again an and any anything are as ask asked at be by can could did do does ever for
    from had has have how i i'm in is it know last like live me mine my name of on or our
    please remember said say something still talk talked tell that the them there they this to
    told us was we were what what's when where which who why will with work would you your
    """,
    )
)
_KEEP = {
    "name": ("name",),
    "likes": ("like",),
    "dislikes": ("dislike",),
    "home": ("live",),
    "job": ("work",),
    "asked": ("asked", "remember"),
}


def to_you(text: str) -> str:
    """Return the user's words from the other perspective: "my cat" becomes "your cat"."""
    return re.sub(
        r"\b(?:i(?:'m|'ve|'ll)?|am|me|my|mine|myself)\b",
        lambda m: _YOU[m[0].lower()],
        text,
        flags=re.IGNORECASE,
    )


def sentences(text: str) -> list[str]:
    """Return sentences with their punctuation; curly apostrophes are straightened."""
    return [s.strip() for s in _SENTENCE.findall(text.replace("\u2019", "'")) if s.strip()]


def is_question(sentence: str) -> bool:
    remember = _REMEMBER.search(sentence)
    if remember and (remember["polite"] or not sentence.endswith("?")):
        return False
    return sentence.endswith("?") or bool(_ASKS.match(sentence))


def facts(text: str) -> list[StatedFact]:
    """Return what the user says about themselves in this text, in order, each once."""
    stated_facts = [f for s in sentences(text) if not is_question(s) for f in _of_sentence(s)]
    return list(dict.fromkeys(stated_facts))


def _of_sentence(sentence: str) -> list[StatedFact]:
    request = _REMEMBER.search(sentence)
    if request:
        statement = sentence[: request.start()]
    else:
        statement = sentence
    stated_facts = [
        fact for clause in _CLAUSE.split(statement) if (fact := _of_clause(clause.strip()))
    ]
    if request and _tidy(request["what"]):
        return [*stated_facts, StatedFact("asked", _tidy(request["what"]))]
    return stated_facts


def _of_clause(clause: str) -> StatedFact | None:
    clause = re.sub(
        r"^(?:also|and|but|so|well|yes|no|hi|hello|hey)\b[,!]?\s+", "", clause, flags=re.IGNORECASE
    )
    for kind, pattern in _SAID:
        if (match := pattern.search(clause)) and (
            subject := _tidy(re.split(r",|;| and ", match[1])[0] if kind == "name" else match[1])
        ):
            return StatedFact(kind, subject)
    return None


def _tidy(text: str) -> str:
    return text.strip().rstrip(".!?,;: ").strip("\"' ")


def parse_fact_line(line: str) -> list[StatedFact]:
    """Return the facts in a stored line.

    One that was to be remembered and is a fact itself counts twice.
    """
    for kind, pattern in _READ:
        if match := pattern.match(line.strip()):
            fact = StatedFact(kind, _tidy(match[1]))
            if kind == "asked":
                return [fact, *facts(fact.subject)]
            return [fact]
    if is_question(line.strip()):
        return []
    return facts(line) or [StatedFact("other", line.strip())]


def questions(text: str) -> list[Question]:
    """Return the user's questions that a memory could answer, in order."""
    return [
        question
        for s in sentences(text)
        if is_question(s)
        if (question := _question(s.rstrip("?!. ")))
    ]


def _question(sentence: str) -> Question | None:
    for kind, pattern in _KINDS:
        if pattern.search(sentence):
            return Question(kind, _KEEP.get(kind, ()))
    words = keywords(sentence)
    if not words or _TO_THE_MODEL.match(sentence):
        return None
    if _ABOUT_USER.search(re.sub(r"^tell me\b", "", sentence, flags=re.IGNORECASE)):
        return Question("topic", words)
    if _LOOK_UP.match(sentence):
        return Question("topic", words, personal=False)
    return None


def keywords(text: str) -> tuple[str, ...]:
    """Return the distinctive words of a text in their base form, each once."""
    words = re.findall(r"[\w']+", text.lower().replace("\u2019", "'"))
    return tuple(dict.fromkeys(bare(w) for w in words if w not in _STOP and bare(w)))


def bare(word: str) -> str:
    """Return a word without endings that differ between question and answer."""
    word = word.removesuffix("'s").strip("'")
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word
