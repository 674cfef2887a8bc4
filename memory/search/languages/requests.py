"""What asks to keep, change or forget something: such a request tells what it is about."""

from __future__ import annotations

# Languages whose words are looked for as parts of others. Searched apart, as one choice between
# plain beginnings, their patterns take a fiftieth of the time.
IN_PARTS = ("ru", "hi", "ar", "ja", "zh")
# Regular expressions, looked for anywhere in a sentence in lower case.
KEEPING = {
    "en": r"\b(?:remember|remembered|memori[sz]e|keep in mind|bear in mind"
    r"|make a note|note(?: down)?|jot|save|store|record|update|correction|change|delete|remove"
    r"|erase|forget|forgot"
    r"|add|replace|rename|call me|for the record|fyi|by the way|btw|know that|aware that"
    r"|don't call|stop calling)\b",
    "de": r"\b(?:merk|merke|merken|gemerkt|erinner\w*|notier\w*|vermerk\w*|speicher\w*|behalt\w*"
    r"|vergiss|vergessen|lösch\w*|entfern\w*|änder\w*|aktualisier\w*|korrigier\w*|streich\w*"
    r"|nenn mich|update|korrektur)\b",
    "fr": r"\b(?:retien\w*|retenir|souvien\w*|souvenir|rappelle\w*|rappeler|mémoris\w*|enregistr\w*"
    r"|not(?:e|er|ez)|oubli\w*|supprim\w*|efface\w*|retir\w*|modifi\w*|chang\w*|corrig\w*"
    r"|mets? à jour|mettre à jour|mise à jour|appelle-moi)\b",
    "es": r"\b(?:recuerd\w*|recordar\w*|acuérdate|memoriz\w*|anot\w*|apunt\w*|guard\w*|registr\w*"
    r"|olvid\w*|borr\w*|elimin\w*|quit\w*|cambi\w*|actualiz\w*|corrig\w*|corregir|llámame)\b",
    "pt": r"\b(?:lembr\w*|record\w*|memoriz\w*|anot\w*|guard\w*|salv\w*|registr\w*|regist\w*"
    r"|esquec\w*|esqueç\w*|apag\w*|exclu\w*|remov\w*|mud\w*|alter\w*|atualiz\w*|corrij\w*"
    r"|corrig\w*|me chame)\b",
    "ru": r"запомн|помни|запиш|записа|сохран|учти|учесть|имей в виду|забуд|забыть|удал|сотри"
    r"|измени|поменя|обнови|исправ|замени|называй",
    "hi": r"याद|नोट|सहेज|सेव|ध्यान|भूल|हटा|मिटा|बदल|अपडेट|सुधार|ठीक कर|रिकॉर्ड|लिख ल",
    "ar": r"تذكر|تذكّر|احفظ|سجل|سجّل|دون|دوّن|انس|انسَ|احذف|امسح|غير|غيّر|حدث"
    r"|حدّث|عدل|عدّل|صحح|ضع في اعتبارك|لا تنس|تحفظ|تحديث|تتذكر",
    "ja": r"覚え|おぼえ|メモ|記録|保存|忘れ|削除|消し|変更|"
    r"更新|直し|訂正|登録|と呼んで|控えて",
    "zh": r"记住|记得|记下|记录|记一下|保存|存一下|忘记|忘掉|忘了|删除|"
    r"删掉|去掉|更新|更改|改成|改为|修改|更正|纠正|叫我"
    r"|記住|記得|記下|記錄|儲存|忘記|刪除|刪掉|修改|更改",
}
# In each sentence that the patterns of two languages fit, which are searched for long.
CLAUSE_HINTS = {"es": ("que ", "pues "), "pt": ("que ", "pois ")}
# What a subordinate clause begins with: behind it something may be told.
CLAUSES = {
    "en": r"\b(?:that|because|since|as) (?:i|i'm|i've|my|we|we're|our)\b"
    r"|\b(?:because|given that|now that|considering) \w+ \w+"
    # A question would say "am I": in this order it is told, as in "who forgot I'm left-handed?".
    r"|\b(?:i'm|i am|i was|i've|i can't|i cannot|i don't|i never|i always|we're|we are|we've)\b",
    "de": r"\b(?:dass|daß|weil|da|obwohl|wenn) \w+ \w+",
    "fr": r"\b(?:que|qu'|parce que|car|puisque|vu que) ?(?:je|j'|nous|mon|ma|mes|notre|nos)",
    "es": r"(?:^|\b(?!qué\b)\w+ )(?:que|porque|ya que|pues) \w+ \w+",
    "pt": r"(?:^|\b(?!o\b)\w+ )(?:que|porque|já que|pois) \w+ \w+",
    "ru": r"\b(?:что|потому|так как|поскольку|хотя) (?:я|мы|у|мо\w+|на\w+)\b",
    "hi": r"(?:कि|क्योंकि|चूँकि|चूंकि) ",
    "ar": r"(?:أن|أنّ|أني|أنني|أننا|لأن|لأني|لأنني|بأن|بأني|بأنني)(?: |\b)",
    "ja": r"(?:から|ので|けど|けれど|って|のを|ことを|なんですが|のですが|だと)",
    "zh": r"(?:因为|因為|由于|所以|吗我|我是|我有|我住|我叫|我在|我的)",
}
