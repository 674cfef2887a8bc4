"""What people ask to be remembered, and what changes, in ten languages. Nobody here is real.

Beside the plain statements of `cue_people`: polite requests with a fact in them, and pairs of what
was true and what is now.
"""

from __future__ import annotations

from typing import NamedTuple


class ToldFact(NamedTuple):
    """A line that a user says. quote: the words in it that tell the fact. old: that it replaces."""

    line: str
    quote: str
    old: str = ""


def _read(told: str) -> tuple[ToldFact, ...]:
    """Read lines: `!` a request with its quote behind a bar, `<` what was true, `>` what is."""
    out: list[ToldFact] = []
    for row in told.strip().splitlines():
        mark, _, text = row.strip().partition(" ")
        line, _, quote = text.partition(" | ")
        old = out[-1].quote if mark == ">" else ""
        out.append(ToldFact(line, quote or line, old))
    return tuple(out)


_TOLD = {
    "English": """
! Can you remember that I'm allergic to peanuts? | I'm allergic to peanuts
! Could you please note that my sister's name is Judit? | my sister's name is Judit
! Please don't forget that I never eat after eight in the evening. | I never eat after eight
! Keep in mind that I work from home on Fridays, would you? | I work from home on Fridays
< I live in Bremen.
> Update: I moved to Lyon last week.
< My dentist is Doctor Okafor.
> My dentist isn't Doctor Okafor any more, it's Doctor Lindqvist now.
""",
    "German": """
! Kannst du dir merken, dass ich gegen Erdnüsse allergisch bin? | ich gegen Erdnüsse allergisch bin
! Könntest du bitte notieren, dass meine Schwester Judit heißt? | meine Schwester Judit heißt
! Vergiss bitte nicht, dass ich nach acht Uhr abends nie esse. | ich nach acht Uhr abends nie esse
! Merk dir doch, dass ich freitags von zu Hause arbeite. | ich freitags von zu Hause arbeite
< Ich wohne in Bremen.
> Aktualisierung: Ich bin letzte Woche nach Lyon gezogen.
< Mein Zahnarzt ist Doktor Okafor.
> Mein Zahnarzt ist nicht mehr Doktor Okafor, sondern jetzt Doktor Lindqvist.
""",
    "French": """
! Peux-tu retenir que je suis allergique aux arachides ? | je suis allergique aux arachides
! Pourrais-tu noter que ma sœur s'appelle Judit, s'il te plaît ? | ma sœur s'appelle Judit
! N'oublie pas que je ne mange jamais après huit heures du soir. | je ne mange jamais après huit
! Souviens-toi que je travaille de chez moi le vendredi. | je travaille de chez moi le vendredi
< J'habite à Brême.
> Mise à jour : j'ai déménagé à Lyon la semaine dernière.
< Mon dentiste est le docteur Okafor.
> Mon dentiste n'est plus le docteur Okafor, c'est maintenant le docteur Lindqvist.
""",
    "Spanish": """
! ¿Puedes recordar que soy alérgico a los cacahuetes? | soy alérgico a los cacahuetes
! ¿Podrías anotar que mi hermana se llama Judit, por favor? | mi hermana se llama Judit
! No olvides que nunca ceno después de las ocho. | nunca ceno después de las ocho
! Ten en cuenta que los viernes trabajo desde casa. | los viernes trabajo desde casa
< Vivo en Bremen.
> Actualización: la semana pasada me mudé a Lyon.
< Mi dentista es el doctor Okafor.
> Mi dentista ya no es el doctor Okafor, ahora es el doctor Lindqvist.
""",
    "Portuguese": """
! Você pode lembrar que sou alérgico a amendoim? | sou alérgico a amendoim
! Poderia anotar que minha irmã se chama Judit, por favor? | minha irmã se chama Judit
! Não esqueça que eu nunca como depois das oito da noite. | eu nunca como depois das oito
! Guarde que eu trabalho de casa às sextas-feiras. | eu trabalho de casa às sextas-feiras
< Eu moro em Bremen.
> Atualização: eu me mudei para Lyon na semana passada.
< Meu dentista é o doutor Okafor.
> Meu dentista não é mais o doutor Okafor, agora é o doutor Lindqvist.
""",
    "Russian": """
! Можешь запомнить, что у меня аллергия на арахис? | у меня аллергия на арахис
! Не могла бы ты записать, что мою сестру зовут Юдит? | мою сестру зовут Юдит
! Не забудь, пожалуйста, что я никогда не ем после восьми вечера. | я никогда не ем после восьми
! Имей в виду, что по пятницам я работаю из дома. | по пятницам я работаю из дома
< Я живу в Бремене.
> Обновление: на прошлой неделе я переехал в Лион.
< Мой стоматолог доктор Окафор.
> Мой стоматолог больше не доктор Окафор, теперь это доктор Линдквист.
""",
    "Japanese": """
! 私がピーナッツアレルギーだと覚えておいてくれますか？ | 私がピーナッツアレルギーだ
! 妹の名前はユディトだとメモしてもらえますか？ | 妹の名前はユディトだ
! 夜八時以降は何も食べないことを忘れないでください。 | 夜八時以降は何も食べない
! 金曜日は在宅で働いていると覚えておいて。 | 金曜日は在宅で働いている
< ブレーメンに住んでいます。
> 更新です。先週リヨンに引っ越しました。
< 歯医者はオカフォー先生です。
> 歯医者はもうオカフォー先生ではなく、今はリンドクヴィスト先生です。
""",
    "Chinese": """
! 你能记住我对花生过敏吗？ | 我对花生过敏
! 麻烦你记一下，我妹妹叫尤迪特。 | 我妹妹叫尤迪特
! 请别忘了我晚上八点以后不吃东西。 | 我晚上八点以后不吃东西
! 请记得我星期五在家工作。 | 我星期五在家工作
< 我住在不来梅。
> 更新一下：我上周搬到了里昂。
< 我的牙医是奥卡福医生。
> 我的牙医不再是奥卡福医生了，现在是林德奎斯特医生。
""",
    "Arabic": """
! هل يمكنك أن تتذكر أنني أعاني من حساسية الفول السوداني؟ | أعاني من حساسية الفول السوداني
! هل يمكنك من فضلك أن تسجل أن اسم أختي يوديت؟ | اسم أختي يوديت
! لا تنس أنني لا آكل أبدا بعد الثامنة مساء. | لا آكل أبدا بعد الثامنة مساء
! تذكر من فضلك أنني أعمل من البيت يوم الجمعة. | أعمل من البيت يوم الجمعة
< أسكن في بريمن.
> تحديث: انتقلت إلى ليون الأسبوع الماضي.
< طبيب أسناني هو الدكتور أوكافور.
> طبيب أسناني لم يعد الدكتور أوكافور، بل هو الآن الدكتور ليندكفيست.
""",
    "Hindi": """
! क्या आप याद रख सकते हैं कि मुझे मूंगफली से एलर्जी है? | मुझे मूंगफली से एलर्जी है
! क्या आप लिख सकते हैं कि मेरी बहन का नाम जूडिथ है? | मेरी बहन का नाम जूडिथ है
! कृपया यह न भूलें कि मैं रात आठ बजे के बाद कुछ नहीं खाता। | मैं रात आठ बजे के बाद कुछ नहीं खाता
! ध्यान रखना कि मैं शुक्रवार को घर से काम करता हूँ। | मैं शुक्रवार को घर से काम करता हूँ
< मैं ब्रेमेन में रहता हूँ।
> अपडेट: मैं पिछले हफ़्ते लियोन चला गया।
< मेरे दंत चिकित्सक डॉक्टर ओकाफ़ोर हैं।
> मेरे दंत चिकित्सक अब डॉक्टर ओकाफ़ोर नहीं, डॉक्टर लिंडक्विस्ट हैं।
""",
}
TOLD: dict[str, tuple[ToldFact, ...]] = {name: _read(told) for name, told in _TOLD.items()}
