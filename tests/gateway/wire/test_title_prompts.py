"""Prompts for titles, tags, questions and queries are known in many languages; people's are not."""

from __future__ import annotations

import time

import pytest

from gateway.wire.ui_prompts import UiPromptDetector
from memory.conversation.history import Messages

DETECTOR = UiPromptDetector()
USER = {"role": "user", "content": "user: hi\nassistant: hello"}
CHAT = "\n<chat_history>\nUSER: hi\nASSISTANT: hello\n</chat_history>"

PLAIN = [
    "Detect user language and write in the same language an extremely concise title for this "
    "conversation, which you must accurately detect. Title in 5 Words or Less.",
    "Summarize the chat history into a short title",
    "Summarize in a 10-word Title. Give the title only. Here is the message: hi",
    "Generate a concise 3-7 word title for this conversation, omitting punctuation.",
    "[Summarize our chat in a short title]",
    "Suggest 3 short follow-ups for the conversation above.",
    "Erstelle einen kurzen Titel (3-5 Wörter) für dieses Gespräch. Antworte nur mit dem Titel.",
    "Bitte fasse die folgende Unterhaltung in einem Titel mit höchstens fünf Wörtern zusammen:",
    "Vergib drei kurze Schlagwörter für diesen Chat.",
    "Schlage drei kurze Folgefragen zu dieser Unterhaltung vor.",
    "Génère un titre court pour cette conversation. Réponds uniquement avec le titre.",
    "Suggère 3 questions de suivi pour cette conversation",
    "Proposez 1 à 3 étiquettes pour cet échange.",
    "Genera un título corto y conciso para esta conversación. Responde solo con el título.",
    "Por favor, sugiere 3 preguntas de seguimiento para este chat.",
    "Gere um título curto para esta conversa. Responda apenas com o título.",
    "Sugira 3 etiquetas para este diálogo.",
    "Genera un titolo breve per questa conversazione. Rispondi solo con il titolo.",
    "Придумай короткий заголовок для этого разговора. Ответь только заголовком.",
    "Предложи 3 тега для этой беседы.",
    "اكتب عنوانًا قصيرًا لهذه المحادثة. أجب بالعنوان فقط.",
    "इस बातचीत के लिए एक छोटा शीर्षक बनाएँ। केवल शीर्षक दें।",
    "この会話の短いタイトルを生成してください。タイトルのみを返してください。",
    "请为这段对话生成一个简短的标题，只返回标题。",
    "이 대화의 짧은 제목을 생성해 주세요.",
]
HEADED = [
    "### Aufgabe:\nDu bist ein System zur Vervollständigung. Setze den Text in `<text>` fort.\n"
    "### Ausgabe:\nJSON\n<type>General</type>\n<text>Hallo ich</text>",
    '**Tarefa:** Gere um título de 3 a 5 palavras para a conversa.\n{"title": "..."}' + CHAT,
    '### Задача:\nСоздай запрос для изображения.\n### Вывод:\n{ "prompt": "..." }',
    "### Tâche :\nGénérez 1 à 3 étiquettes générales." + CHAT,
    "### Tarea:\nAnaliza el historial para determinar si hacen falta búsquedas." + CHAT,
]
SYSTEM = [
    "Generate a title for this chat",
    "You are an expert in crafting pithy titles for chatbot conversations.",
    "You are a helpful assistant that generates concise, descriptive titles for conversations "
    "with OpenHands.",
    "Based on the conversation so far, provide a concise description of this session in 4 words.",
    "Summarize this coding conversation in under 50 characters.",
    "Analyze if this message indicates a new conversation topic. If it does, extract a title.",
    "You are an emoji expert who selects the most appropriate emoji to represent concepts",
    "你擅长进行概念归纳总结，将以下内容提炼为分类标签",
    "You are an AI question rephraser. Your role is to rephrase follow-up queries",
    "As a professional web researcher who can access latest data, your primary objective is to",
    "You will be given a conversation below and a follow up question. You need to rephrase it",
    "Given the following conversation and a follow up question, rephrase the follow up question "
    "to be a standalone question.",
    "Given a chat history and the latest user question which might reference context in the chat "
    "history, formulate a standalone question",
]
PEOPLE = [
    "Give me a short title for my novel about a conversation",
    "Write a short story about a chat show",
    "Summarize the meeting in 5 words",
    "Create a title for my talk on bridges",
    "Name three things we said in this conversation that matter to me",
    "Schreib mir einen kurzen Brief an meine Mutter",
    "Erstelle einen Titel für meinen Vortrag über Brücken, mit höchstens 5 Wörtern",
    "Fasse das Gespräch mit meinem Chef bitte kurz zusammen",
    "Gib mir 3 Tipps für ein Gespräch mit meiner Tochter",
    "Écris un titre court pour mon roman",
    "Donne-moi 3 conseils pour une conversation difficile",
    "Escribe un título corto para mi novela",
    "Resume esta conversación en 5 palabras, por favor",
    "Escreva um título curto para meu romance",
    "Придумай короткий заголовок для моей статьи о мостах",
    "Напиши 3 совета для трудного разговора",
    "اكتب عنوانا قصيرا لروايتي",
    "मेरे उपन्यास के लिए एक छोटा शीर्षक बनाएँ",
    "私の小説の短いタイトルを考えてください",
    "请给我的小说起一个简短的标题",
    "我想和你对话，只是聊聊天",
    "Given the following numbers, which is the largest?",
    "Title: what is a conversation?",
]


def is_known(*messages):
    return DETECTOR.matches(Messages.of(messages))


@pytest.mark.parametrize("words", [*PLAIN, *HEADED])
def test_what_programs_ask_for_themselves_is_known_in_each_language(words):
    before = [{"role": "user", "content": "I am Ada"}, {"role": "assistant", "content": "Hello"}]
    said = {"role": "user", "content": words}
    assert is_known(said)
    assert is_known(*before, said)
    assert is_known({"role": "system", "content": words}, USER)


@pytest.mark.parametrize("words", SYSTEM)
def test_what_programs_tell_a_model_to_be_is_known(words):
    assert is_known({"role": "system", "content": words}, USER)


@pytest.mark.parametrize("words", PEOPLE)
def test_what_people_ask_for_is_theirs(words):
    assert not is_known({"role": "user", "content": words})


def test_no_text_takes_long():
    many = [
        "Generate " + "x " * 5000,
        "Erstelle " + "titel " * 1000,
        "请" + "生成" * 3000,
        "**a: " + "{ " * 5000,
        "### a: " + "<type>" * 2000,
    ]
    began = time.thread_time()
    for words in many:
        is_known({"role": "user", "content": words})
    assert time.thread_time() - began < 0.5
