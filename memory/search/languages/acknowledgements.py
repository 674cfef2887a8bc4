"""What assistants say when they only heard: looked for anywhere in a short answer in lower case."""

from __future__ import annotations

ACKNOWLEDGEMENTS = {
    "en": r"\b(?:i see|i understand|understood|got it|noted|thank you|thanks|thank|i hear you|okay"
    r"|ok|alright|sure|of course|certainly|will do|you're welcome|you are welcome|no problem"
    r"|good to know|happy to help|glad to|i'll remember|i will remember|i'll keep)\b",
    "de": r"\b(?:verstehe|verstanden|ich sehe|alles klar|notiert|gemerkt|danke|dank|in ordnung"
    r"|okay|gern|gerne|natürlich|klar|kein problem|gut zu wissen|ich merke)\b",
    "fr": r"\b(?:je vois|je comprends|compris|c'est noté|noté|merci|d'accord|entendu|bien sûr"
    r"|parfait|avec plaisir|de rien|bon à savoir|je m'en souviendrai)\b",
    "es": r"\b(?:ya veo|entiendo|entendido|comprendo|anotado|gracias|de acuerdo|vale|claro|perfecto"
    r"|con gusto|de nada|bueno saberlo|lo recordaré)\b",
    "pt": r"\b(?:entendo|entendi|entendido|compreendo|anotado|obrigad[oa]|certo|claro|perfeito"
    r"|beleza|com prazer|de nada|bom saber|vou lembrar)\b",
    "ru": r"\b(?:понятно|понял[аи]?|ясно|понимаю|спасибо|благодарю|хорошо|отлично|конечно|ладно"
    r"|записал[аи]?|запомню|запомнил[аи]?|учту|пожалуйста|рад помочь)\b",
    "hi": r"(?:समझ गय|समझ गई|समझा|ठीक है|धन्यवाद|शुक्रिया|नोट कर|बिल्कुल|ज़रूर|याद रख)",
    "ar": r"(?:فهمت|مفهوم|حسنا|شكرا|شكرًا|تمام|بالتأكيد|بالطبع|سأتذكر|دونت|على الرحب|عفوا)",
    "ja": r"(?:わかりました|分かりました|なるほど|承知|了解|ありがとう|かしこまりました|そうですか"
    r"|そうなんですね|覚えておきます)",
    "zh": r"(?:明白|我知道了|知道了|了解|谢谢|感谢|好的|收到|没问题|记住了|我会记|不客气)",
    "it": r"\b(?:capisco|capito|ho capito|grazie|va bene|certo|perfetto|d'accordo|prego)\b",
    "nl": r"\b(?:ik snap|ik begrijp|begrepen|dank|bedankt|oké|prima|natuurlijk|graag gedaan)\b",
    "ko": r"(?:알겠습니다|알겠어요|그렇군요|감사합니다|고맙습니다|네,|기억하겠습니다)",
}
