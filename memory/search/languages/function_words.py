"""Words that say nothing about what a text is about, and words for "the user"."""

from __future__ import annotations

# Without accents, as they are compared.
FUNCTION_WORDS = {
    "en": "user users user's i im me my mine myself we us our also very really now "
    "currently likes like wants want has have had is are was were been being there here one "
    "ones too",
    "de": "benutzer benutzers nutzer nutzers benutzerin nutzerin der die das des dem den "
    "ein eine einen einem einer eines ich mich mir mein meine meinen meinem meiner du sie "
    "er es wir uns ihr ihre sein seine ist sind war waren bin bist hat habe haben hatte "
    "wird werden und oder aber nicht kein keine in im an am auf aus bei mit nach von vom zu "
    "zum zur fur uber als wie dass weil auch noch schon sehr jetzt gerade",
    "fr": "utilisateur utilisatrice le la les l un une des du de d je j tu il elle on nous "
    "vous ils elles me m te se s mon ma mes son sa ses notre nos et ou mais ne n pas plus "
    "est sont etait suis a ai ont avait dans en sur sous avec sans pour par chez au aux que "
    "qu qui ce cette ces tres",
    "es": "usuario usuaria el la los las lo un una unos unas de del al yo tu el ella "
    "nosotros me te se mi mis su sus y o pero no es son era soy esta estan estoy tiene "
    "tengo ha he en con sin por para que a muy ya",
    "pt": "usuario usuaria utilizador utilizadora o a os as um uma uns umas de do da dos "
    "das no na nos nas eu ele ela nos me se meu minha meus minhas seu sua seus suas e ou "
    "mas nao sou esta estou tem tenho em com sem por para que ao muito ja",
    "ru": "пользователь пользователя пользователю пользователем пользовательница я меня мне "
    "мной мои моя мое моего моеи моему моим моих он она оно они его ее их мы нас нам и или "
    "но не нет в во на с со у к ко о об от до по за из для что как это есть был была было "
    "были очень",
    "hi": "उपयोगकर्ता उपयोगकर्ता का की के को से में पर ने मैं मैंने मुझे मेरा मेरी मेरे हम "
    "है हैं हूँ हूं था थी थे और या लेकिन नहीं न कि यह वह वो भी एक हो",
    "ar": "المستخدم المستخدمة انا أنا هو هي نحن في من على إلى الى عن مع أن ان إن لا ما لم "
    "لن و أو او هذا هذه ذلك التي الذي كان كانت قد",
    "it": "utente il lo la i gli le un uno una di del della in con per e o ma non io mi mio "
    "mia e sono",
    "nl": "gebruiker de het een van in met voor en of maar niet ik mijn is zijn",
}
FUNCTION_WORDS_CJK = (
    "ユーザー",
    "用户",
    "用戶",
    "使用者",
    "사용자",
    "です",
    "ます",
    "ました",
    "ません",
    "という",
    "には",
    "では",
    "している",
    "して",
    "った",
    "私",
    "僕",
    "我们",
    "我",
    "他",
    "她",
    "の",
    "は",
    "が",
    "を",
    "に",
    "で",
    "と",
    "も",
    "の",
    "的",
    "了",
    "是",
    "在",
    "有",
    "和",
    "不",
)
