"""What people tell beside questions, corrections, quotations of others and what might be.

Sixteen lines in each of ten languages, written without the rules in view.
"""

from __future__ import annotations

_LINES = {
    "English": """
What I really can't stand is the smell of lavender.
When I was nine I broke my collarbone, so no bench press for me.
Find me a GP, I have chronic migraines.
I'm not vegan any more, I eat fish now, ok?
My mum always says "never trust a Gemini", but I'm a Gemini myself.
If I ever moved it would be to Bergen, that's where my wife grew up.
vegan here btw
no I don't have kids
Isn't it funny that my twin brother and I both married Karens?
Is it ok to take ibuprofen? I'm on blood thinners.
it's Priya with a y at the end, not Pria
Explain this like I'm five, I'm a retired carpenter and know no maths.
Do you think my job at the aquarium is weird?
Actually scratch that, the wedding is on the 14th, not the 12th
Yesterday was my first day at Lufthansa!
Why does everyone forget I'm left-handed?
""",
    "German": """
Was ich gar nicht leiden kann, ist Lavendelduft.
Als ich neun war, hab ich mir das Schlüsselbein gebrochen.
Such mir einen Hausarzt, ich habe chronische Migräne.
Ich esse nicht mehr vegan, inzwischen auch Fisch, ok?
Meine Mutter sagt immer „trau keinem Zwilling“, dabei bin ich selbst einer.
Wenn ich je umziehen würde, dann nach Bergen, da kommt meine Frau her.
bin übrigens veganer
nein ich habe keine kinder
Ist es nicht lustig, dass mein Zwillingsbruder und ich beide Karins geheiratet haben?
Darf man da Ibuprofen nehmen? Ich nehme Blutverdünner.
Priya mit y, nicht Pria
Erklär es mir einfach, ich bin gelernter Tischler.
Findest du meinen Job im Aquarium komisch?
Quatsch, die Hochzeit ist am 14., nicht am 12.
Gestern war mein erster Tag bei Lufthansa!
Warum vergessen alle, dass ich Linkshänder bin?
""",
    "French": """
Ce que je ne supporte pas, c'est l'odeur de lavande.
Quand j'avais neuf ans, je me suis cassé la clavicule.
Trouve-moi un médecin, j'ai des migraines chroniques.
Je ne suis plus végane, je mange du poisson, d'accord ?
Ma mère dit toujours « ne te fie jamais à un Gémeaux », mais j'en suis un.
Si je déménageais un jour, ce serait à Bergen, d'où vient ma femme.
végane ici au fait
non je n'ai pas d'enfants
C'est drôle que mon jumeau et moi ayons épousé deux Karine, non ?
On peut prendre de l'ibuprofène ? Je suis sous anticoagulants.
c'est Priya avec un y, pas Pria
Explique simplement, je suis menuisier à la retraite.
Tu trouves mon travail à l'aquarium bizarre ?
En fait non, le mariage est le 14, pas le 12
Hier c'était mon premier jour chez Lufthansa !
Pourquoi tout le monde oublie que je suis gauchère ?
""",
    "Spanish": """
Lo que no soporto es el olor a lavanda.
Cuando tenía nueve años me rompí la clavícula.
Búscame un médico, tengo migrañas crónicas.
Ya no soy vegana, ahora como pescado, ¿vale?
Mi madre siempre dice «nunca te fíes de un géminis», pero yo lo soy.
Si me mudara algún día sería a Bergen, de donde es mi mujer.
vegana por aquí
no, no tengo hijos
¿No es gracioso que mi gemelo y yo nos casáramos con dos Karinas?
¿Se puede tomar ibuprofeno? Tomo anticoagulantes.
es Priya con y, no Pria
Explícamelo fácil, soy carpintero jubilado.
¿Te parece raro mi trabajo en el acuario?
Mejor dicho, la boda es el 14, no el 12
¡Ayer fue mi primer día en Lufthansa!
¿Por qué todos olvidan que soy zurda?
""",
    "Portuguese": """
O que eu não suporto é cheiro de lavanda.
Quando eu tinha nove anos quebrei a clavícula.
Ache um médico para mim, tenho enxaqueca crônica.
Não sou mais vegana, agora como peixe, tá?
Minha mãe sempre diz "não confie em geminianos", mas eu sou um.
Se um dia eu me mudasse seria para Bergen, terra da minha mulher.
vegana aqui
não, não tenho filhos
Não é engraçado que meu gêmeo e eu casamos com duas Karinas?
Pode tomar ibuprofeno? Tomo anticoagulante.
é Priya com y, não Pria
Explique simples, sou marceneiro aposentado.
Você acha estranho meu emprego no aquário?
Na verdade o casamento é dia 14, não dia 12
Ontem foi meu primeiro dia na Lufthansa!
Por que todo mundo esquece que sou canhota?
""",
    "Russian": """
Чего я терпеть не могу, так это запах лаванды.
Когда мне было девять, я сломал ключицу.
Найди мне врача, у меня хроническая мигрень.
Я больше не веган, теперь ем рыбу, ладно?
Мама всегда говорит «не верь Близнецам», а я сам Близнец.
Если бы я переехал, то в Берген, оттуда моя жена.
кстати веган
нет, детей нет
Забавно, что мы с братом-близнецом женились на двух Каринах, правда?
Можно ли пить ибупрофен? Я принимаю антикоагулянты.
Прия через я, а не Приа
Объясни попроще, я столяр на пенсии.
Моя работа в океанариуме кажется тебе странной?
Нет, свадьба 14-го, а не 12-го
Вчера был мой первый день в Люфтганзе!
Почему все забывают, что я левша?
""",
    "Hindi": """
मुझे जो बिल्कुल बर्दाश्त नहीं, वह है लैवेंडर की गंध।
जब मैं नौ साल का था, मेरी हँसली टूट गई थी।
कोई डॉक्टर ढूँढो, मुझे पुराना माइग्रेन है।
मैं अब वीगन नहीं हूँ, मछली खाता हूँ, ठीक है?
माँ हमेशा कहती हैं "मिथुन पर भरोसा मत करो", पर मैं खुद मिथुन हूँ।
अगर मैं कभी जाऊँ तो बर्गन, मेरी पत्नी वहीं की है।
वैसे वीगन हूँ
नहीं, मेरे बच्चे नहीं हैं
मज़ेदार है न कि मेरे जुड़वाँ भाई और मैंने दो करीनाओं से शादी की?
क्या आइबूप्रोफ़ेन ले सकते हैं? मैं खून पतला करने की दवा लेता हूँ।
प्रिया, प्रियंका नहीं
आसान भाषा में समझाओ, मैं रिटायर्ड बढ़ई हूँ।
क्या मछलीघर में मेरी नौकरी अजीब लगती है?
नहीं, शादी १४ को है, १२ को नहीं
कल लुफ्थांसा में मेरा पहला दिन था!
सब क्यों भूल जाते हैं कि मैं बाएँ हाथ से लिखता हूँ?
""",
    "Japanese": """
どうしても我慢できないのはラベンダーの匂いです。
九歳のとき鎖骨を折りました。
内科を探して、慢性の片頭痛なんです。
もうヴィーガンじゃなくて魚は食べます、いいですか？
母はいつも「双子座を信じるな」と言うけど、私も双子座です。
もし引っ越すならベルゲンかな、妻の故郷だから。
ちなみにヴィーガンです
いや、子どもはいません
双子の弟も私もカリンという人と結婚したなんて面白くない？
イブプロフェンは飲める？血液をさらさらにする薬を飲んでいます。
プリヤです、プリアじゃなくて
簡単に説明して、引退した大工なので。
水族館の仕事って変だと思う？
やっぱり結婚式は12日じゃなくて14日です
昨日はルフトハンザの初日でした！
どうしてみんな私が左利きだと忘れるんだろう？
""",
    "Chinese": """
我最受不了的是薰衣草的味道。
九岁的时候我摔断过锁骨。
帮我找个医生，我有慢性偏头痛。
我不吃全素了，现在吃鱼，行吗？
我妈老说“别信双子座”，可我自己就是双子座。
要是哪天搬家就去卑尔根，我太太是那里人。
顺便说我吃全素
没有，我没有孩子
我和双胞胎弟弟都娶了叫卡琳的人，好笑吧？
能吃布洛芬吗？我在吃抗凝药。
是普丽雅，不是普利亚
讲简单点，我是退休木匠。
你觉得我在水族馆上班奇怪吗？
不对，婚礼是14号，不是12号
昨天是我在汉莎的第一天！
为什么大家总忘记我是左撇子？
""",
    "Arabic": """
ما لا أطيقه حقا هو رائحة الخزامى.
عندما كنت في التاسعة كسرت ترقوتي.
ابحث لي عن طبيب، أعاني من صداع نصفي مزمن.
لم أعد نباتيا صرفا، صرت آكل السمك، حسنا؟
أمي تقول دائما «لا تثق ببرج الجوزاء»، وأنا من برج الجوزاء.
لو انتقلت يوما فسيكون إلى بيرغن، فزوجتي من هناك.
بالمناسبة أنا نباتي
لا، ليس لدي أطفال
أليس مضحكا أني وتوأمي تزوجنا امرأتين اسمهما كارين؟
هل يمكن تناول الإيبوبروفين؟ أتناول مميعات الدم.
بريا وليس بريّة
اشرح ببساطة، فأنا نجار متقاعد.
هل ترى عملي في الأحياء المائية غريبا؟
بل الزفاف يوم ١٤ وليس ١٢
أمس كان أول يوم لي في لوفتهانزا!
لماذا ينسى الجميع أنني أعسر؟
""",
}
TELLING_LINES = {language: text.strip().splitlines() for language, text in _LINES.items()}
