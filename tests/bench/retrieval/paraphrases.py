"""Questions that share no word with the message that answers them, in a chat of our own: what an
embedder is for.

`Thesaurus` is told which words mean the same, for this very set, so it says what a search makes of
an embedder that knows, not what one on the market knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memory.search.vocabulary import STOP
from tests.bench.retrieval.embedders import DIMENSIONS, StandIn, noise
from tests.bench.retrieval.stored import Utterance

# (what the user said, the question, the words of both that mean the same)
PAIRS = (
    (
        "My beagle swallowed a sock last night.",
        "What trouble did the dog get into?",
        "beagle dog puppy hound",
    ),
    (
        "I adore cycling along the canal at dawn.",
        "Which sport is a favourite hobby?",
        "cycling sport hobby bike riding",
    ),
    (
        "Peanuts make my throat swell up.",
        "Is there any food allergy to watch for?",
        "peanuts food allergy swell throat",
    ),
    ("We bought a cottage near Bristol.", "Where is the new house?", "cottage house home bought"),
    (
        "Our daughter starts kindergarten in autumn.",
        "How old is the child, school age?",
        "daughter child kindergarten school kid",
    ),
    (
        "The physician prescribed statins.",
        "What medicine did the doctor suggest?",
        "physician doctor prescribed medicine statins suggest",
    ),
    (
        "I teach chemistry to teenagers.",
        "What is the user's job?",
        "teach job work profession chemistry",
    ),
    (
        "Mum baked a lemon tart for my anniversary party.",
        "What dessert was served at the celebration?",
        "baked tart dessert cake served celebration party",
    ),
    (
        "My laptop's screen cracked on the train.",
        "Which computer got broken?",
        "laptop computer cracked broken screen",
    ),
    (
        "I quit cigarettes two winters ago.",
        "Does this person smoke?",
        "cigarettes smoke quit tobacco",
    ),
    (
        "We are flying to Lisbon over Easter.",
        "What are the holiday travel plans?",
        "flying holiday travel plans trip easter",
    ),
    (
        "I can't stand heights, ladders scare me.",
        "What is a known fear or phobia?",
        "heights scare fear phobia ladders",
    ),
    (
        "Grandpa fought as a sailor in the navy.",
        "Was any relative in the military?",
        "grandpa relative family navy military sailor fought",
    ),
    (
        "I gave up beef and pork entirely.",
        "Are vegetarian dishes preferred?",
        "beef pork vegetarian dishes meat",
    ),
    (
        "The violin lessons cost me forty euros.",
        "What is spent on music each week?",
        "violin music instrument lessons cost spent euros",
    ),
    (
        "Rent went up to nine hundred.",
        "How much does the flat cost monthly?",
        "rent flat monthly apartment",
    ),
    (
        "My spouse is a lawyer for refugees.",
        "What does the wife do for a living?",
        "spouse wife husband lawyer living",
    ),
    (
        "I drive an electric Renault.",
        "Which car is owned?",
        "drive car owned renault vehicle electric",
    ),
    (
        "I wake at five to jog.",
        "What is the morning exercise routine?",
        "wake jog morning exercise routine running five",
    ),
    (
        "The manuscript went to three publishers.",
        "How is the novel going?",
        "manuscript novel book publishers",
    ),
    ("My knee was operated in March.", "Any recent surgery?", "operated surgery knee hospital"),
    ("Our tabby had four kittens.", "Did the cat have babies?", "tabby cat kittens babies"),
    ("I owe the bank eleven thousand.", "How large is the debt?", "owe bank debt loan thousand"),
    (
        "We got engaged on a gondola.",
        "When was the marriage proposal?",
        "engaged marriage proposal wedding gondola",
    ),
    (
        "I am learning to code in Rust.",
        "Which programming language is studied?",
        "code programming rust learning studied",
    ),
    (
        "Thunderstorms keep me awake.",
        "What weather disturbs the sleep?",
        "thunderstorms weather awake sleep disturbs storm",
    ),
)
# What is said around them: it holds words of the questions, so that these find something.
AROUND = (
    "What a day it was, the old trouble with the printer again.",
    "Which film did you watch?",
    "Is there any milk left?",
    "The new office is quite large.",
    "How are you, any plans?",
    "Did the parcel arrive?",
    "What is the time in Tokyo?",
    "My user name does not work any more.",
    "It was served cold.",
    "Which of them got here first?",
    "Does this make sense?",
    "What are the rules of chess?",
    "It is a known problem.",
    "Was any of it useful?",
    "The preferred way is by post.",
    "Each week something else.",
    "How much does it weigh?",
    "For a living room that is bright.",
    "Which window is owned by this process?",
    "The morning news was dull.",
    "How is the sauce?",
    "A recent photograph, please.",
    "Did the lights have to flicker?",
    "The large one, not the small.",
    "When was the last update?",
    "Which language is this menu in?",
    "What a good suggestion.",
    "Is it far?",
    "A hobby horse made of wood.",
    "The house rules are on the door.",
    "Get into the habit of saving files.",
    "Old age and wisdom.",
    "A favourite song of mine.",
    "The doctor in that series is odd.",
    "This person on the radio again.",
    "Travel light.",
    "Going up or down?",
    "The flat tone of the bell.",
    "Watch for the second turn.",
    "The computer in the library is slow.",
    "Weather permitting.",
    "School of thought.",
    "The wife of Bath, in Chaucer.",
    "Music to my ears.",
    "A routine check of the boiler.",
    "Babies of the stock market, they say.",
    "The cat is out of the bag.",
    "A child could do it.",
    "Military precision!",
    "Dessert wines are sweet.",
    "The job queue is empty.",
    "A novel idea.",
    "The debt ceiling in the news.",
    "Car parks are full.",
)


def utterances() -> list[Utterance]:
    """Each statement between two messages that are about something else, six in a session."""
    said = [
        x
        for i, (text, _, _) in enumerate(PAIRS)
        for x in (
            (f"p{i}", text),
            (f"a{2 * i}", AROUND[2 * i]),
            (f"a{2 * i + 1}", AROUND[2 * i + 1]),
        )
    ]
    return [
        Utterance(
            key,
            f"session {i // 18}",
            "",
            "user" if i % 2 == 0 else "assistant",
            text,
            1_714_000_000.0 + i // 18 * 864_000 + i,
        )
        for i, (key, text) in enumerate(said)
    ]


def questions() -> list[tuple[str, str]]:
    """(question, the id of the message that answers it)."""
    return [(asked, f"p{i}") for i, (_, asked, _) in enumerate(PAIRS)]


def thesaurus() -> StandIn:
    """An embedder that knows which words of the set mean the same."""
    meant = {w: i for i, (_, _, words) in enumerate(PAIRS) for w in words.split()}

    def made(text: str) -> list[float]:
        known: list[Sequence[float]] = [
            noise(str(meant.get(w, w)))
            for w in re.findall(r"[a-z]+", text.lower())
            if w not in STOP
        ]
        return [sum(x) for x in zip(*known, strict=True)] if known else [0.0] * DIMENSIONS

    return StandIn("thesaurus", made)
