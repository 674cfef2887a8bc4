"""Words that search knows: those that carry no meaning, forms that no stemmer joins, days and months. Pure."""
from __future__ import annotations

STOP = frozenset(
    ["a", "about", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do", "does", "for", "from", "had", "has", "have", "he", "her", "him", "his", "how", "i", "if", "in", "is", "it", "its", "just", "me", "my", "no", "not", "of", "on", "or", "our", "she", "so", "some", "than", "that", "the", "their", "them", "then", "there", "they", "this", "to", "us", "was", "we", "were", "what", "when", "where", "which", "who", "whom", "whose", "why", "will", "with", "would", "you", "your",
     # what is left of "what's", "didn't", "I've", "we'll", "they're", "I'd", "I'm"
     "s", "t", "d", "m", "ll", "re", "ve", "didn", "doesn", "don", "isn", "wasn"])

_IRREGULAR = (
    "go went gone", "buy bought", "win won", "teach taught", "take took taken", "make made", "get got gotten", "give gave given", "see saw seen", "find found",
    "tell told", "think thought", "feel felt", "leave left", "bring brought", "begin began begun", "keep kept", "hold held", "write wrote written",
    "stand stood", "hear heard", "mean meant", "meet met", "run ran", "pay paid", "sit sat", "speak spoke spoken", "lead led", "grow grew grown",
    "lose lost", "fall fell fallen", "send sent", "build built", "understand understood", "draw drew drawn", "break broke broken", "spend spent",
    "rise rose risen", "drive drove driven", "wear wore worn", "choose chose chosen", "eat ate eaten", "sing sang sung", "swim swam swum",
    "sleep slept", "sell sold", "catch caught", "fight fought", "throw threw thrown", "fly flew flown", "forget forgot forgotten", "ride rode ridden",
    "drink drank drunk", "know knew known", "say said", "come came", "become became", "hide hid hidden", "shoot shot", "steal stole stolen",
    "wake woke woken", "bite bit bitten", "blow blew blown", "freeze froze frozen", "lend lent", "light lit", "shake shook shaken", "show shown",
    "strike struck", "swear swore sworn", "tear tore torn", "dig dug", "feed fed", "hang hung", "lie lay lain", "seek sought", "shine shone",
    "spin spun", "stick stuck", "sweep swept", "weep wept", "bend bent", "bleed bled", "breed bred", "cling clung", "creep crept", "deal dealt",
    "dream dreamt", "forgive forgave forgiven", "kneel knelt", "lay laid", "learn learnt", "ring rang rung", "shrink shrank shrunk", "sink sank sunk",
    "spell spelt", "spill spilt", "spring sprang sprung", "swing swung", "child children", "person people", "man men", "woman women", "foot feet",
    "tooth teeth", "mouse mice", "wife wives", "life lives", "knife knives", "leaf leaves")
FORMS = {form: tuple(group.split()) for group in _IRREGULAR for form in group.split()}

MONTHS = {name: i for i, name in enumerate(
    ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"], 1)}
DAYS = {name: i for i, name in enumerate(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"])}
