"""Words by which people speak of themselves."""

from __future__ import annotations

# Whole words, where words are written apart.
SELF = {
    "en": "i im ive me my mine myself we us our ours",
    "de": "ich mich mir mein meine meinen meinem meiner meines meins wir uns unser unsere "
    "unseren unserem unserer",
    "fr": "je j moi mon ma mes mien mienne nous notre nos",
    "es": "yo mí mi mis mío mía conmigo nosotros nosotras nuestro nuestra nuestros nuestras "
    "soy estoy tengo vivo",
    "pt": "eu mim meu minha meus minhas comigo nós nosso nossa nossos nossas sou estou tenho moro",
    "ru": "я меня мне мной мой моя моё мои моего моей моему моим моих мы нас нам наш наша наши "
    "мама маме маму папа папе "
    "папу жена жене жену муж мужу мужа сын сыну дочь дочке бабушке дедушке",
    "hi": "मैं मैंने मुझे मुझको मेरा मेरी मेरे हम हमें हमारा हमारी हमारे हूँ हूं",
    "ar": "أنا نحن لي عندي لدي معي مني إلي إني أنني لأنني كنت زوجتي زوجي ابني ابنتي أمي أبي "
    "بيتي اسمي عملي",
    "it": "io mi mio mia miei mie noi nostro nostra sono",
    "nl": "ik mij mijn wij ons onze",
}
# Verbs of the first person, which in these languages need no word beside them. Some are nouns too,
# so that they tell of a user only where somebody asks.
SELF_VERBS = {
    "es": "bebo cocino colecciono compré conduzco conozco cuido cumplo debo duermo enseño "
    "entreno escribo estudio evito fui hablo hago juego leo llevo mido nací necesito odio padezco "
    "peso practico prefiero puedo quiero sigo sufro temo tengo toco tomo trabajo traduzco uso vivo "
    "voy",
    "pt": "aprendo bebo chamo coleciono como comprei conduzo conheço cozinho cuido dirijo durmo "
    "ensino escrevo estudo evito faço falo fui gosto jogo leio moro nasci odeio peso posso pratico "
    "prefiro preciso sigo sofro tenho toco tomo trabalho traduzo treino uso vivo vou",
    "ar": "آكل أشرب أسكن أعمل أعيش أدرس أتعلم أتكلم أتحدث أتحدثها أخاف أعاني أعزف ألعب أقود أملك "
    "أحب أكره أفضل أمارس أربي أسافر أتجنب مهنتي عملي وظيفتي مرضي صحتي بصري نظري سمعي سيارتي سكني "
    "أطفالي أولادي عائلتي إخوتي ميلادي عمري هوايتي",
}
# Anywhere, where they are not.
SELF_CJK = (
    "我",
    "咱",
    "私",
    "僕",
    "俺",
    "わたし",
    "ぼく",
    "おれ",
    "うちの",
    "自分",
    "나는",
    "내가",
    "저는",
)
# Relatives, whom these languages name without a word for "my".
KIN_CJK = (
    *(
        "妈妈",
        "媽媽",
        "爸爸",
        "老婆",
        "老公",
        "妻子",
        "丈夫",
        "儿子",
        "女儿",
        "兒子",
        "女兒",
        "奶奶",
        "爷爷",
    ),
    *(
        "母は",
        "母が",
        "母に",
        "母の",
        "父は",
        "父が",
        "父に",
        "父の",
        "夫は",
        "夫が",
        "夫に",
        "夫の",
    ),
    *("妻は", "妻が", "妻に", "妻の", "息子", "娘"),
)
# A Japanese question that asks back, and one of what was or is, without a subject.
ASKS_BACK_JA = r"っけ[?？。]*\Z"
NO_SUBJECT_JA = r"[^はが]*(?:てい|でい|まし|でし)(?:ます|た)か[?？。]*\Z"
# What a question or a request has of the first person, although it tells nothing of it.
FRAMES = (
    r"\b(?:can|could|should|would|shall|may|might|do|did|will|must|am|have|had|if) (?:i|we)\b",
    r"\b(?:help|tell|give|show|teach|send|let|get|find|make|write|read|remind|ask|explain to) "
    r"(?:me|us)\b",
    r"\bi(?: would|'d)? (?:want|need|like|love)(?: you)? to\b",
    r"\bhilf mir\b|\b(?:sag|gib|zeig|erklär|nenn|schreib|such|mach)e? mir\b|\bkann ich\b",
    r"\b(?:dê|dá|diga|mostre|explique|ajude|conte|faça|escreva)[ -]me\b",
    r"\b(?:дай|скажи|покажи|помоги|расскажи|напиши|объясни|подскажи)(?:те)? мне\b",
    r"मुझे (?:बताओ|बताइए|दो|दीजिए|समझाओ|दिखाओ)",
    r"\b(?:dis|donne|montre|explique|aide|écris|fais)[ -]moi\b",
)
# The words of `SELF` that a frame may have; a test compares them.
FRAMED_SELF = "i we me us ich mir мне मुझे moi"

# Whom a question is asked for, in the dative: by the endings that few but names of people have.
_FOR_WHOM_RU = (
    r"(?!(?:техн|лог|граф|аналит|динам|пан|стат|такт|практ|полит|тема|физ|музы|фабр|матем|документ"
    r"|инструмент|аргумент|элемент|фрагмент|вариант|страниц|границ|единиц|больниц|гостиниц"
    r"|контейнер)\w*\b)"
    r"(?:\w{2,}(?:ику|исту|н[её]ру|жеру|анту|енту|гану|ологу|анке|истке|ичке|нице)"
    r"|мужчине|женщине|матери|отцу|человеку|беременной|больному|больной|пожилому|новичку|врачу"
    r"|учителю|водителю|подростку|ребёнку|ребенку)"
)
_FOR_WHOM_AR = (
    r"(?:مريض|مصاب|شخص|طالب|نباتي|مبتدئ|متقاعد|حامل|أم|أب|امرأة|رجل|موظف|معلم|مهندس|عامل)(?:ة|ا|اً)?"
)
# Patterns of beginnings by which people say what they are, without a word for themselves.
ROLES = (
    r"(?:as|being) (?:a|an|someone|somebody)\b(?! (?:rule|result|whole|matter|consequence|start))",
    r"als (?!nächst|erst|letzt|beispiel)\w+(?: \w+)?[,:]",
    r"en tant que? ?",
    r"étant (?!donné)\w+(?: \w+)?[,:]",
    r"enquanto (?!isso|isto|tal)\w+(?: \w+)?[,:]",
    # "come" also asks how, so that the endings of people decide.
    r"come (?:\w+(?:[ai]c[oa]|ista|ier[ea]|tore|trice)|vegan[oa]|vegetarian[oa]|madre|padre)[,:]",
    r"(?:como|siendo|sendo) (?!siempre|sempre|ejemplo|exemplo)\w+(?: \w+)?[,:]",
    r"(?:будучи \w+|как \w+),",
    # "How is a diabetic to eat?": asked with an infinitive, as people ask for themselves.
    r"(?:как|что|чем|где|куда|когда|можно ли|нужно ли|стоит ли) (?:\w+(?:ому|ему|ой|ей) )?"
    rf"{_FOR_WHOM_RU}\b(?=.*\w(?:ть|ти|чь)(?:ся|сь)?\b)",
    r"(?:بصفتي|كوني|باعتباري)",
    rf"ك{_FOR_WHOM_AR}\b",
    rf"(?:كيف|ماذا|ما|هل|متى|أين|أي)\b.*\bل{_FOR_WHOM_AR}\b",
    r"作为|作為|身为",
    r"(?!예로서|결과로서)(?:\S{1,20} ){0,3}\S{1,20}로서[ ,]",
    r"(?!उदाहरण|परिणाम)(?:\S{1,20} ){1,4}(?:के (?:रूप में|तौर पर)|होने के नाते|की हैसियत से)[ ,]",
)
