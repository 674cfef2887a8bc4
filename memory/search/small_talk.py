"""Recognises small talk: greetings, thanks, praise and moods, in several languages. Pure.

For small talk nothing is recalled, and nothing of it is kept. A line counts as small talk if all of
its words do: one word of substance, a number or "my" makes it something else.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set

from memory.search.characters import CJK
from memory.search.languages.acknowledgements import ACKNOWLEDGEMENTS
from memory.search.text_terms import WORD, query_words
from memory.search.vocabulary import STOP

# Characters, and rare words of what tells something.
MAX_ACKNOWLEDGEMENT, MIN_RARE = 120, 2
MAX_CHARACTERS = 160


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


# Words that make small talk.
SMALL_TALK = word_set("""
    hi hello hey heya hiya yo howdy greetings morning afternoon evening night goodnight gn bye
    goodbye cya ciao thanks thank thx ty thankyou cheers welcome please pls sorry apologies oops
    ok okay okey k kk alright sure yes yeah yep yup nope nah cool nice great awesome amazing
    wonderful fantastic excellent perfect brilliant lovely beautiful sweet neat superb fabulous
    terrific gorgeous fine interesting funny hilarious lol lmao rofl haha hahaha hehe hmm hm mm
    uh um oh ah aha wow whoa yay hooray bravo congrats congratulations worries mind luck joke
    jokes weather sunny rainy tired sleepy bored boring hungry thirsty happy glad appreciate
    helpful helped exactly agreed indeed absolutely definitely certainly sounds sense weekend
    robot bot ai human chat talk later soon best bad fun good fair wait gotcha understood cute
    impressive incredible unbelievable seriously rested chilly freezing delightful charming kind

    hallo hi hey moin servus guten gute guter morgen abend nacht tag tschüss tschüs ciao bis
    später bald danke dank dankeschön bitte bitteschön gern gerne sorry entschuldigung leid super
    toll klasse prima schön schöne schönen schönes schöner wunderbar perfekt cool klar genau
    stimmt ok okay ja nein jo nö naja haha lustig witzig witz witze wetter müde langweilig
    glücklich froh gut besser wochenende feierabend grüße gruß problem egal alles verstehe
    verstanden ach aha oh hmm nett lieb geholfen hilfe schlaf schlafe

    hola hasta buenas buenos buena buen dias días tardes noches adios adiós chao luego gracias mil
    favor perdón perdon perdona disculpa siento vale bien mal genial perfecto estupendo
    fantástico fantastico increíble increible guay bonito bonita lindo linda gracioso graciosa
    divertido divertida jaja jajaja jeje chiste claro si sí no exacto cierto entiendo entendido
    cansado cansada aburrido aburrida feliz contento contenta tiempo semana fin problema nada
    mejor encantado encantada descanses duermas suena veo ayuda ayudado saludos

    bonjour salut bonsoir bonne bon nuit journée soirée merci beaucoup pardon désolé désolée
    super génial parfait cool oui non ouais bien drôle mdr blague fatigué fatiguée revoir bientôt
    accord voilà excusez rien grave

    ciao buongiorno buonasera buonanotte salve grazie mille prego scusa scusi bene benissimo
    perfetto bello bella fantastico divertente stanco stanca arrivederci presto
    olá oi bom boa dia tarde noite obrigado obrigada valeu desculpa tudo bem legal ótimo
    perfeito cansado cansada tchau
    hoi goedemorgen goedenavond dank bedankt graag sorry leuk mooi prima goed doei moe grappig
    привет здравствуйте здравствуй спасибо пожалуйста пока хорошо отлично супер круто ладно да нет
    извини извините утро вечер день спокойной ночи доброе добрый устал устала
    안녕 안녕하세요 감사합니다 고마워 고마워요 네 아니요 좋아요 좋아 죄송합니다 미안해 하하 잘자
    """)
# Words that may stand beside them.
BESIDE = (STOP - {"my", "our"}) | word_set("""
    now today tonight tomorrow yesterday again still very much really quite little bit lot lots
    too also all everything anything nothing well right up down day time one ones here back go
    going doing done do make makes made job work works working let tell say see know think guess
    suppose feel feeling feels need want like love hope hear take care get got more most even
    never always ever such sort kind thing things way off out over am im ive id youre thats its
    whats hows dont cant isnt moment minute second sec ready friend buddy mate man dude guys
    everyone there friday monday sleep sir dear look looks seem seems another same real hows ya u
    enjoy problem problems worry new

    ich du er sie es wir ihr mir mich dir dich uns euch dein deine ist war sind bin bist hat habe
    hast haben wie was so sehr viel vielen vieles ein eine einen etwas bisschen heute jetzt nun
    noch auch nur mal doch schon ja oder und aber das der die den dem ganz wirklich echt richtig
    zu im am an auf in mit für von machst macht mach geht gehts klingt tut erzähl erzähle sag
    kein keine nicht sein wäre würde dann denn na wohl immer wieder morgen nacht

    yo tu tú el él ella usted nosotros me te se le nos es son está estás estoy soy eres era
    fue ser estar hay hace haces hacer hoy mañana ayer ahora muy mucho mucha muchas muchos un una
    poco algo todo toda de del la las los lo que qué como cómo cuando tal con por para y o pero
    al a en ya también más ti tus tu vemos nos cuéntame cuentame dime gusta haces

    je tu il elle on nous vous me te ce est suis es sont un une de du la le les des très peu
    aujourd hui demain ça va comment et ou mais c à pas se moi toi fait
    io lei sei è sono che come va molto un una di il la e ma oggi
    eu você é que como um uma de o a e muito hoje
    ik je jij het de een is ben en heel erg ja nee
    я ты вы он как дела что это и но очень так всё все сегодня у меня с
    """)
_HEARD = re.compile("|".join(ACKNOWLEDGEMENTS.values()))
_OWN = re.compile(r"\bmy (?:bad|pleasure|friend|dear|god|goodness|word|apologies)\b")
# A question of the user's about themselves, such as "what makes me happy?".
_ASKS = word_set("""
    what who where when which how was wer wo wann welche welcher welches qué quién dónde cuándo
    cuál cómo
""")
_SELF = word_set("i me ich mich mir yo me")
_IDLE_WORDS = SMALL_TALK | BESIDE
_DIGIT = re.compile(r"\d")
_SMALL_CJK = (
    "你好",
    "您好",
    "大家好",
    "早上好",
    "上午好",
    "下午好",
    "晚上好",
    "早安",
    "晚安",
    "好好休息",
    "休息",
    "再见",
    "拜拜",
    "明天见",
    "回头见",
    "待会见",
    "谢谢",
    "感谢",
    "多谢",
    "辛苦",
    "不客气",
    "不用谢",
    "没关系",
    "没事",
    "没问题",
    "对不起",
    "抱歉",
    "不好意思",
    "好的",
    "好吧",
    "好啊",
    "好呀",
    "可以",
    "行吧",
    "太好了",
    "太棒了",
    "真棒",
    "很棒",
    "厉害",
    "不错",
    "听起来",
    "有意思",
    "有趣",
    "好笑",
    "哈哈",
    "呵呵",
    "嘻嘻",
    "嗯嗯",
    "原来如此",
    "知道了",
    "明白了",
    "明白",
    "了解",
    "天气",
    "周末",
    "过得",
    "怎么样",
    "讲个笑话",
    "笑话",
    "有点累",
    "好累",
    "累",
    "无聊",
    "开心",
    "高兴",
    "干什么",
    "干嘛",
    "在吗",
    "加油",
    "恭喜",
    "帮助",
    "帮忙",
    "最近",
    "吃了吗",
    "没错",
    "是的",
    "对的",
    "当然",
    "さようなら",
    "こんにちは",
    "おはよう",
    "こんばんは",
    "おやすみ",
    "ありがとう",
    "ございます",
    "すみません",
    "ごめん",
    "なさい",
    "はい",
    "いいえ",
    "いいね",
    "すごい",
    "元気",
    "疲れた",
)
_BESIDE_CJK = frozenset(
    "的了吗呢吧啊呀哦嗯喔我你您他她它们很真太好是在有点今天明昨晚早么给个讲都也就还又啦嘛么呗哈诶です、ですかねよ"
)


def is_small_talk(text: str) -> bool:
    """Tell whether the text is nothing but small talk."""
    if len(text) > MAX_CHARACTERS:
        return False
    if _DIGIT.search(text) or (not text.isascii() and any(map(str.isdigit, text))):
        return False
    bare_text = _OWN.sub(" ", unicodedata.normalize("NFC", text).casefold().replace("’", "'"))
    runs = ""
    if not text.isascii():
        runs = "".join(CJK.findall(bare_text))
    words = set(WORD.findall(CJK.sub(" ", bare_text) if runs else bare_text))
    if not _IDLE_WORDS.issuperset(words) or _asks_about_self(words):
        return False
    bare = runs
    for phrase in _SMALL_CJK if runs else ():
        bare = bare.replace(phrase, "")
    if not _BESIDE_CJK.issuperset(bare):
        return False
    return len(bare) < len(runs) or not SMALL_TALK.isdisjoint(words) or not (words or runs)


def _asks_about_self(words: Set[str]) -> bool:
    return not (_ASKS.isdisjoint(words) or _SELF.isdisjoint(words))


def is_acknowledgement(text: str) -> bool:
    """Tell whether an assistant's text only says that it heard: a short one of common words.

    One rare word more may be the verb of "thanks for telling me", which no list has in all forms.
    """
    if len(text) > MAX_ACKNOWLEDGEMENT:
        return False
    if is_small_talk(text):
        return True
    remaining_text, heard_count = _HEARD.subn(" ", text.lower().replace("’", "'"))
    return heard_count > 0 and sum(word.is_rare for word in query_words(remaining_text)) < MIN_RARE
