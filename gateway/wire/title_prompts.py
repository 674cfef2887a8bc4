"""How chat programs ask for titles, tags or further questions, in twelve languages. Pure.

Their prompts are set by operators and translated, so that no beginning tells them all. What they
have in common: they tell to make something of a conversation, and of what size or form. A person's
own request lacks one of it.
"""

from __future__ import annotations

# From the beginning, in which all of it stands.
NEAR_CHARACTERS, FORM_CHARACTERS = 160, 300

# By language: what they tell to do, what to make, of what, and of what size or form.
_MAKE = {
    "en": r"generate|create|write|suggest|provide|give|summari[sz]e|make|propose|produce|extract"
    r"|detect|analy[sz]e|condense|craft|come up with|name",
    "de": r"erstell\w*|generier\w*|schreib\w*|formulier\w*|fass\w*|gib|nenn\w*|schlag\w*|verfass\w*"
    r"|erzeug\w*|vergib|analysier\w*",
    "fr": r"g[ée]n[èeé]r\w+|cr[ée]\w*|[ée]cri\w+|donn\w+|r[ée]sum\w+|propos\w+|sugg[èeé]r\w+"
    r"|r[ée]dig\w+|analys\w+",
    "es": r"genera\w*|crea\w*|escrib\w+|resum\w+|da|dame|sugier\w+|propon\w*|redact\w+|analiza\w*",
    "pt": r"ger[ea]\w*|cri[ea]\w*|escrev\w+|resum\w+|dê|sugir\w+|sugere|forneça|analise",
    "it": r"genera\w*|crea\w*|scriv\w+|riassum\w+|sugger\w+|proponi|dai",
    "ru": r"придума\w+|созда\w+|сгенерир\w+|напиш\w+|состав\w+|предлож\w+|дай\w*|сформулир\w+"
    r"|обобщ\w+|проанализ\w+",
    "ar": r"أنشئ|اكتب|ولّد|ولد|لخص|اقترح|قدم|ضع|حلل",
    "hi": r"[^\n]{0,90}(?:बनाएँ|बनाएं|बनाइए|बनाओ|लिखें|लिखिए|दें|दीजिए|सुझाएँ|सुझाएं|करें)",
    "ja": r"[^\n]{0,60}(?:生成|作成|つけて|付けて|考えて|要約|まとめ|提案)",
    "zh": r"[^\n]{0,60}(?:生成|提供|总结|概括|起|写|给出|拟|建议)",
    "ko": r"[^\n]{0,60}(?:생성|만들|작성|요약|제안|지어)",
}
_WHAT = {
    "en": r"titles?\b|\btags\b|follow[- ]?ups?\b|search queries",
    "de": r"titel|überschrift|schlagw|\btags\b|folgefragen|anschlussfragen|suchanfragen",
    "fr": r"\btitre|étiquettes|\btags\b|questions de suivi|requêtes de recherche",
    "es": r"título|etiquetas|preguntas de seguimiento|consultas de búsqueda",
    "pt": r"título|etiquetas|\btags\b|perguntas de (?:acompanhamento|seguimento)|consultas de",
    "it": r"titolo|etichette|\btag\b|domande di approfondimento",
    "ru": r"заголов|назван|\bтег|метк|уточняющ|следующ\w+ вопрос|поисков\w+ запрос",
    "ar": r"عنوان|وسوم|أسئلة متابعة|استعلامات",
    "hi": r"शीर्षक|टैग|अनुवर्ती|खोज प्रश्न",
    "ja": r"タイトル|題名|タグ|フォローアップ|検索クエリ",
    "zh": r"标题|標題|标签|后续问题|搜索查询",
    "ko": r"제목|태그|후속 질문|검색어",
}
_CHAT = {
    "en": r"\b(?:the|this|our|following|users?'?s?|coding|entire|above|current|previous)\s"
    r"(?:\w+\s){0,2}(?:conversation|chat|discussion|thread|dialogue|exchange)\b"
    r"(?! (?:show|room|app|bot))",
    "de": r"unterhaltung|gespräch|chat|konversation|dialog",
    "fr": r"conversation|discussion|échange|dialogue|\bchat\b",
    "es": r"conversación|\bchat\b|diálogo|charla",
    "pt": r"conversa|\bchat\b|diálogo",
    "it": r"conversazione|\bchat\b|dialogo",
    "ru": r"разговор|бесед|диалог|\bчат|переписк",
    "ar": r"محادثة|دردشة|حوار",
    "hi": r"बातचीत|चैट|वार्तालाप|संवाद",
    "ja": r"会話|チャット|対話",
    "zh": r"对话|對話|会话|聊天",
    "ko": r"대화|채팅",
}
_FORM = {
    "en": r"\b(?:short|concise|brief|words?|only|just)\b",
    "de": r"\bkurz|prägnant|\bwört|\bnur\b|knapp",
    "fr": r"\bcourt|concis|\bbref|\bmots\b|uniquement|seulement",
    "es": r"\bcort[oa]|breve|concis|palabras|\bs[oó]lo\b|únicamente",
    "pt": r"\bcurt[oa]|breve|concis|palavras|apenas|somente",
    "it": r"\bbreve|concis|parole|\bsolo\b",
    "ru": r"коротк|кратк|\bслов|только|лаконичн",
    "ar": r"قصير|موجز|كلمات|فقط",
    "hi": r"छोटा|संक्षिप्त|शब्द|केवल|सिर्फ़",
    "ja": r"短い|簡潔|文字|のみ|だけ",
    "zh": r"简短|简洁|简明|字|只|仅",
    "ko": r"짧은|간결|단어|만",
}
_PLEASE = (
    r"(?:(?:please|bitte|por favor|пожалуйста|per favore|s'il (?:vous|te) pla[iî]t|请|请你|من فضلك|"
    r"कृपया)[,:]?\s*)?"
)
# In these the verb comes last, or words are not written apart.
_VERB_BEHIND = ("hi", "ja", "zh", "ko")
_WORD_END = r"(?![^\W\d_])"


def _pattern(language: str) -> str:
    """Return what fits a prompt in a language, behind its first words.

    What it tells to do is looked for first: few messages begin so, and each turn asks this.
    """
    gap = f".{{0,{NEAR_CHARACTERS}}}?"
    form = rf".{{0,{FORM_CHARACTERS}}}?(?:{_FORM[language]}|\d)"
    lookaheads = f"(?={gap}(?:{_WHAT[language]}))(?={gap}(?:{_CHAT[language]}))(?={form})"
    if language in _VERB_BEHIND:
        return rf"(?=[^\x00-\u02ff]){lookaheads}(?:{_MAKE[language]})"
    return rf"(?:{_MAKE[language]}){_WORD_END}{lookaheads}"


_PROMPTS = "|".join(map(_pattern, _MAKE))
TITLE_PROMPTS = (
    rf"^[\W_]{{0,8}}{_PLEASE}(?:{_PROMPTS})",
    r"^(?:generate|create|write) an? title for (?:this|the) (?:chat|conversation)\W*\Z",
    # Jan, Copilot, OpenHands, Goose, Claude Code
    r"^Summari[sz]e in a \d+-word title",
    r"^You are an expert in crafting (?:pithy|ultra-compact) titles for chatbot conversations",
    r"^You are a helpful assistant that generates concise, descriptive titles for conversations",
    r"^Based on the conversation so far, provide a concise description of this session",
    r"^Summari[sz]e this coding conversation in under \d+ characters",
    r"^Analy[sz]e if this message indicates a new conversation topic",
    # LobeChat's other ones, Open WebUI's older queries
    r"^You are an emoji expert who selects the most appropriate emoji to represent concepts",
    r"^你擅长进行概念归纳总结",
    r"^Analy[sz]e the chat history to determine the necessity of generating search queries",
    # A question made to stand alone: Cherry Studio, Chatbox, Perplexica, LangChain
    r"^You are an AI question rephraser\b",
    r"^As a professional web researcher who can access latest data, your primary objective",
    r"^You will be given a conversation below and a follow[- ]?up question\. You need to rephrase",
    r"^Given (?:the following|a) (?:conversation|chat history) and (?:a follow[- ]?up|the latest "
    r"user) (?:question|input)[^.]{0,120}\b(?:rephrase|formulate|standalone)",
)
