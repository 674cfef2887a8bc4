"""Open WebUI's prompts for titles, tags and search queries, as operators translate them.

The texts are ours. Of Open WebUI they keep what a translation keeps: the sections, the form of the
answer in JSON, and the tags around the chat.
"""

from __future__ import annotations

# Task, guidelines, output, examples, chat history.
SECTIONS = {
    "de": ("Aufgabe", "Richtlinien", "Ausgabe", "Beispiele", "Chatverlauf"),
    "fr": ("Tâche", "Consignes", "Sortie", "Exemples", "Historique de la discussion"),
    "es": ("Tarea", "Pautas", "Salida", "Ejemplos", "Historial del chat"),
    "ru": ("Задача", "Правила", "Вывод", "Примеры", "История чата"),
    "ja": ("タスク", "ガイドライン", "出力", "例", "チャット履歴"),
    "zh": ("任务", "准则", "输出", "示例", "聊天记录"),
}
# What is to be done, and how.
TITLE = {
    "de": (
        "Fasse den Chat in einem Titel von drei bis fünf Wörtern mit einem Emoji zusammen.",
        "Der Titel nennt das Hauptthema, in der Sprache des Chats.",
    ),
    "fr": (
        "Résume la discussion par un titre de trois à cinq mots avec un emoji.",
        "Le titre dit clairement le sujet, dans la langue de la discussion.",
    ),
    "es": (
        "Resume el chat con un título de tres a cinco palabras y un emoji.",
        "El título expresa el tema principal, en el idioma del chat.",
    ),
    "ru": (
        "Придумай к чату заголовок из трёх-пяти слов с эмодзи.",
        "Заголовок ясно называет тему на языке чата.",
    ),
    "ja": (
        "絵文字を付けて、会話を要約する短いタイトルを作成してください。",
        "タイトルは会話の主な話題を、会話と同じ言語で表します。",
    ),
    "zh": (
        "用三到五个词和一个表情符号概括这段聊天的标题。",
        "标题要清楚表达主题，并使用聊天的语言。",
    ),
}
TAGS = {
    "de": (
        "Vergib ein bis drei Schlagwörter für die Themen des Chats.",
        "Bei zu wenig Inhalt genügt ein allgemeines Schlagwort.",
    ),
    "fr": (
        "Propose une à trois étiquettes pour les thèmes de la discussion.",
        "S'il y a trop peu de contenu, une étiquette générale suffit.",
    ),
    "es": (
        "Asigna de una a tres etiquetas a los temas del chat.",
        "Si hay poco contenido, basta una etiqueta general.",
    ),
    "ru": (
        "Подбери от одного до трёх тегов к темам чата.",
        "Если содержания мало, хватит одного общего тега.",
    ),
    "ja": (
        "会話の主題を分類するタグを一つから三つ付けてください。",
        "内容が少なければ、一般的なタグを一つだけ付けます。",
    ),
    "zh": ("为聊天的主题生成一到三个标签。", "内容太少时，只用一个笼统的标签。"),
}
QUERIES = {
    "de": (
        "Prüfe anhand des Chats, ob eine Suche im Netz nötig ist, und nenne Suchanfragen.",
        "Heute ist der 26. November 2026. Im Zweifel suche.",
    ),
    "fr": (
        "Détermine d'après la discussion s'il faut chercher sur le Web, et donne les requêtes.",
        "Nous sommes le 26 novembre 2026. Dans le doute, cherche.",
    ),
    "es": (
        "Decide según el chat si hace falta buscar en la web y escribe las consultas.",
        "Hoy es 26 de noviembre de 2026. En caso de duda, busca.",
    ),
    "ru": (
        "Реши по чату, нужен ли поиск в сети, и составь поисковые запросы.",
        "Сегодня 26 ноября 2026 года. Если сомневаешься, ищи.",
    ),
    "ja": (
        "会話からウェブ検索が必要かを判断し、検索クエリを作成してください。",
        "今日は2026年11月26日です。迷ったら検索してください。",
    ),
    "zh": (
        "根据聊天判断是否需要上网搜索，并生成搜索查询。",
        "今天是2026年11月26日。不确定时就搜索。",
    ),
}
# What a person may want.
SPOKEN = {
    "de": "Schreib mir ein Gedicht über Titel und Schlagwörter.",
    "fr": "Écris-moi un poème sur les titres et les étiquettes.",
    "es": "Escríbeme un poema sobre títulos y etiquetas.",
    "ru": "Напиши мне стихи о заголовках и тегах.",
    "ja": "タイトルとタグについての詩を書いて。",
    "zh": "给我写一首关于标题和标签的诗。",
}
ANSWERS = {
    "title": ('{ "title": "..." }', '{ "title": "📉 DAX" }'),
    "tags": ('{ "tags": ["...", "..."] }', '{ "tags": ["A", "B"] }'),
    "queries": ('{ "queries": ["...", "..."] }', '{ "queries": [] }'),
}
KINDS = {"title": TITLE, "tags": TAGS, "queries": QUERIES}
MESSAGES = "USER: Ich bin allergisch gegen Haselnüsse.\nASSISTANT: 分かりました。"


def write_prompt(kind: str, language: str, heading: str = "### {}:") -> str:
    """Return a prompt. heading: how its sections are headed."""
    task, guidelines, output, examples, history = map(heading.format, SECTIONS[language])
    to_do, how = KINDS[kind][language]
    form, example = ANSWERS[kind]
    return (
        f"{task}\n{to_do}\n{guidelines}\n- {how}\n{output}\nJSON: {form}\n{examples}\n- {example}\n"
        f"{history}\n<chat_history>\n{MESSAGES}\n</chat_history>"
    )
