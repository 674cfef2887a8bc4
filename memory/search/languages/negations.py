"""Words that turn a statement into its opposite, or end it, by language.

NEGATED_CHARACTERS stand within the words of languages that are written without spaces, and
NEGATED_ENDINGS are patterns of whole words, of languages that deny a verb at its end.
"""

from __future__ import annotations

NEGATIONS = {
    "en": "no not never none nor neither nobody nothing without cannot longer anymore t stopped "
    "quit quits dont doesnt didnt isnt arent wasnt cant wont hate hates dislike dislikes avoid "
    "avoids former formerly ex",
    "de": "nicht nichts nie niemals kein keine keinen keinem keiner keines ohne aufgehört "
    "weder noch ungern hasse hasst meide meidet ehemalige ehemaliger früher",
    "fr": "ne n pas plus jamais rien aucun aucune sans ni guère arrêté déteste évite ancien "
    "ancienne",
    "es": "no nunca jamás nada ningún ninguna ninguno sin ni tampoco dejé dejó odio odia evito "
    "evita",
    "pt": "não nao nunca jamais nada nenhum nenhuma sem nem tampouco parei parou odeio odeia evito "
    "evita deixei deixou",
    "it": "non niente nulla nessun nessuno nessuna senza né più smesso odio odia evito evita",
    "nl": "niet niets nooit geen zonder noch meer gestopt haat vermijd vermijdt",
    "pl": "nie nigdy nic żaden żadna żadne bez ani już przestałem przestałam",
    "sv": "inte aldrig ingen inget inga utan slutat",
    "ru": "не нет ни никогда ничего никто без перестал перестала бросил бросила ненавижу избегаю",
    "tr": "değil yok hiç asla artık hiçbir",
    "hi": "नहीं नही मत न ना बिना कभी छोड़",
    "ar": "لا ليس ليست لست لم لن ما غير بدون بلا أبدا أبداً لسنا توقفت أكره أتجنب",
    "he": "לא אין בלי מעולם",
    "el": "δεν μη μην ποτέ χωρίς όχι",
    "uk": "не ні ніколи нічого без",
    "id": "tidak bukan tanpa belum jangan",
    "vi": "không chưa chẳng đừng",
}
NEGATED_CHARACTERS = {
    "ja": "ない なく なかった ません ず ぬ 嫌い やめ 止め",
    "zh": "不 没 沒 無 无 别 別 未 非 戒 讨厌 討厭",
    "ko": "안 않 못 없 아니 싫 끊",
}
NEGATED_ENDINGS = {"tr": r"\w+m[iıuü]yor\w*|\w+m[ae]m\b|\w+m[ae]z\w*|\w+m[ae]d[iı]\w*"}
