"""Background calls of chat UIs (titles, tags, follow-ups), known by their prompts: they run as
`X-Memory: off`. Pure.

The patterns are the beginnings these UIs are known to send; an operator adds more in
`memory.ignore`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.wire.chat import Json
from gateway.wire.title_prompts import TITLE_PROMPTS
from memory.conversation.history import Messages
from memory.conversation.messages import is_system, text_of

# A task of Open WebUI's speaks of a history or a form of output; a person's own "### Task:" need
# not be one of them.
_FORM = r"(?=.{0,3500}(?:<chat_history>|chat history|JSON format|\btitle\b|\btags\b|follow-up))"
_BRIEF = r"(?:short|concise|brief|descriptive|very short)(?:,? [\w-]+)*"

_ANSWER_FORM = r"""(?:<chat_history>|\{\s*"(?:title|tags|follow_ups|queries|prompt)"\s*:"""
_ANSWER_FORM += r"|<type>.{0,100}?</type>\s*<text>)"

SHIPPED = (
    # Open WebUI: titles, tags, follow-ups, search queries, image prompts, autocompletion; emoji,
    # tool choice, merged answers
    rf"^### Task:\s*(?:You are an autocompletion system\b|(?:Generate|Suggest|Analyze)\b{_FORM})",
    # In another language: they keep the form of the answer, by which Open WebUI reads it.
    rf"^(?:###\s?|\*\*)[^\n:：]{{1,40}}[:：].{{0,3500}}{_ANSWER_FORM}",
    r"^(?:#{1,6}\s|\*\*)[^\n]{1,60}\n.{0,3800}<chat_history>",
    r"^Your task is to reflect the speaker's likely facial expression",
    r"^Available Tools: .{0,4000}Your task is to choose and return the correct tool",
    r"^You have been provided with a set of responses from various models to the latest user query",
    r"^Create a concise, 3-5 word (?:phrase|title)",
    # LibreChat
    r"^Analyze this conversation and provide:\s*1\. The detected language of the conversation",
    rf"^(?:Provide|Give|Write) (?:a |an )?{_BRIEF} title for (?:the|this|our) "
    r"(?:conversation|chat)",
    # NextChat and its many forks
    r"^Please generate a four to five word title summarizing our conversation",
    r"^Summarize (?:the|our) discussion briefly in 200 words or less to use as a prompt for "
    r"future context",
    r"^使用四到五个字直接返回这句话的简要主题",
    r"^简要总结一下对话内容，用作后续的上下文提示",
    # LobeChat, Cherry Studio, DeepChat
    r"^You are a professional conversation summarizer\. Generate a concise title",
    r"^You're an assistant who's good at extracting key takeaways from conversations and "
    r"summarizing them",
    r"^(?:You are an assistant (?:skilled|good) (?:in|at) conversations?[.,;]? "
    r")?(?:You|you) "
    r"need "
    r"to summarize the user's conversation into a title",
    r"^你是一名擅长会话的助理，你需要将用户的会话总结为",
    # Chatbox, big-AGI, HuggingChat, the Vercel chat template, OpenCode
    r"^Based on the chat history, give this conversation a name",
    r"^You are an AI conversation titles assistant",
    r"^You are a chat thread titling assistant",
    r"^You are a summarization AI\b",
    r"^-? ?you will generate a short title based on the first message",
    r"^You are a title generator\. You output ONLY",
    # SillyTavern: the summary and vector extensions
    r"^(?:\[Pause your roleplay\. |Ignore previous instructions\. )Summarize the most "
    r"important "
    r"(?:facts and events|parts of the message)",
    # What many smaller ones say
    # (of something of the user's own it is their own wish)
    rf"^(?:Please )?(?:generate|write|create|suggest) (?:a |an )?{_BRIEF} title "
    r"(?!(?:for|of) (?:my|his|her|their) )(?:for|of|that|based on|\()",
    r"^Based on (?:the|this) (?:chat history|conversation)[^.]{0,60}, "
    r"(?:generate|suggest|provide) [^.]{0,40}(?:title|tags|follow-up)",
    r"^(?:You are an? )?(?:expert )?(?:conversation|chat) (?:title|name) generator",
    r"^Summarize (?:the|this) (?:conversation|chat) in (?:less than |under |at most "
    r")?(?:\d+|five|a few|three|four|ten) words",
    *TITLE_PROMPTS,
)
# Characters.
MAX_INSPECTED_CHARACTERS = 4000


class UiPromptDetector:
    """more: the operator's regular expressions, matched at the beginning of the last user message
    or the system text.
    """

    def __init__(self, extra_patterns: Sequence[str] = ()) -> None:
        self._pattern = re.compile(
            "|".join(f"(?:{p})" for p in (*SHIPPED, *extra_patterns)), re.IGNORECASE | re.DOTALL
        )

    def matches(self, messages: Messages) -> bool:
        """Tell whether this request is a UI's own, not its user's."""
        before = messages.before
        after = messages.after
        if after.user < before.count and before.asides:
            is_last_message = before.asides[0]
        else:
            is_last_message = after.user >= 0 and self._one(messages[after.user])
        if before.system and before.asides:
            system = before.asides[1]
        else:
            system = bool(after.system) and self._one(next(filter(is_system, messages)))
        after.asides = is_last_message, system
        return is_last_message or system

    def _one(self, message: Json) -> bool:
        content = message.get("content")
        if type(content) is str:
            text = content
        else:
            text = text_of(message)
        return self._pattern.match(text[:MAX_INSPECTED_CHARACTERS].lstrip()) is not None
