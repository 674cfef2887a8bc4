"""Words that begin a question about something, and requests for work.

A word that asks for yes or no begins none of these: "can you remember that I ..." tells something.
"""

from __future__ import annotations

WH = {
    "en": "what who whom whose where why how which when",
    "de": "was wer wem wen wo wann wie warum wieso weshalb welche welcher welches welchen "
    "wohin woher wieviel wofür womit",
    "fr": "qui quoi où quand comment pourquoi combien quel quelle quels quelles qu",
    "es": "qué quién quiénes dónde cuándo cómo cuánto cuánta cuántos cuántas cuál cuáles adónde",
    "pt": "que quem onde quando como quanto quanta quantos quantas qual quais",
    "ru": "что кто где когда как почему зачем сколько какой какая какое какие куда откуда чей",
    "hi": "कौन कौनसा कहाँ कहां कब कैसे क्यों कितना कितने कितनी किस किसने किसका",
    "ar": "ما ماذا من أين متى كيف لماذا لم كم أي أية",
    "it": "cosa chi dove quando come perché quale quali quanto",
    "nl": "wat wie waar wanneer hoe waarom welke",
}
WH_CJK = (
    "什么",
    "什麼",
    "怎么",
    "怎麼",
    "为什么",
    "為什麼",
    "为何",
    "哪",
    "谁",
    "多少",
    "几点",
    "如何",
)
ENDS_CJK = (
    "吗",
    "嗎",
    "呢",
    "か",
    "かな",
    "かしら",
    "까",
    "까요",
    "나요",
)
# First words of requests for work, which tell nothing by themselves.
WORK = {
    "en": "write rewrite fix explain translate summarize summarise summary show tell give "
    "find list make create generate help compare describe calculate compute convert "
    "refactor check review run sort print draft suggest recommend rephrase paraphrase "
    "proofread correct debug implement build design plan search look read analyze analyse "
    "define solve prove continue repeat try shorten expand simplify format extract parse "
    "open send let's",
    "de": "schreib schreibe erkläre erklär übersetze übersetz fasse zeig zeige gib nenne "
    "finde mach mache erstelle hilf vergleiche beschreibe berechne prüfe lies",
    "fr": "écris explique traduis résume montre donne dis trouve fais crée génère aide "
    "compare décris calcule vérifie lis",
    "es": "escribe explica traduce resume muestra dame dime encuentra haz crea genera "
    "ayúdame compara describe calcula revisa busca lee",
    "pt": "escreva explique traduza resuma mostre diga encontre faça crie gere ajude "
    "compare descreva calcule verifique leia",
    "ru": "напиши объясни переведи покажи дай найди сделай создай помоги сравни опиши "
    "посчитай проверь прочитай",
}
WORK_CJK = (
    "请",
    "請",
    "帮我",
    "幫我",
    "给我",
    "給我",
    "翻译",
    "翻譯",
    "解释",
    "解釋",
    "写",
    "寫",
    "告诉我",
    "总结",
    "列出",
)
FRAMES_CJK = (
    "帮我",
    "幫我",
    "给我",
    "給我",
    "告诉我",
    "告訴我",
    "教我",
)
