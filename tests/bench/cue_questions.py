"""People in ten languages who are asked for themselves directly, half of them in other words.

Four sets, each written before the lists of kinds were changed for what it missed. What a person
tells of themselves stands beside two things that tell nothing of it. Nobody here is real.
"""

from __future__ import annotations

from tests.bench.cue_people import Fact, Person

_ASKED = {
    "English": (
        """
My wife Margit is due in April, it's our first baby.
? When is our baby due?
I drive an old Saab that I fix up myself.
? What car do I have?
I moved to Porto in 2019 for my job at a cork company.
? Where do I live?
""",
        """
I'm vegetarian but I do eat fish on Fridays.
? What do I eat on Fridays?
My brother Callum is getting married in Malta this June.
? Where is my brother's wedding?
I get migraines when I sleep badly.
? What gives me headaches?
""",
        """
My landlord is Mr. Osei and rent goes up in January.
? What is my landlord called?
I'm studying for the bar exam.
? Which exam am I preparing for?
We have twins, Ines and Hugo, aged six.
? How many children do I have?
""",
        """
My van is a blue Transit that I sleep in at weekends.
? What colour is my van?
I take insulin twice a day.
? What medication am I on?
My grandmother raised me in Cork.
? Where did I grow up?
I knit jumpers for charity.
? What do I do in my spare time?
""",
        """
I'm engaged to Leila.
? What's my fiancée's name?
I can't have dairy.
? What should I avoid when eating?
My office is on the 12th floor in Canary Wharf.
? Where is my office?
I turn fifty in June.
? How old will I be?
""",
        """
My son plays the drums and it drives the neighbours mad.
? Which instrument does my son play?
I have type 1 diabetes.
? What illness do I have?
We spend every summer at a campsite in Brittany.
? Where do we go on holiday?
I'm a night porter at a hotel.
? What do I do for a living?
""",
        """
I'm scared of spiders.
? What am I afraid of?
I only drink decaf after noon.
? What do I drink in the afternoon?
My dad has a boat in Whitby harbour.
? Where does my father keep his boat?
I sing in a choir on Mondays.
? What are my hobbies?
""",
        """
I train guide dogs for the blind.
? What's my profession?
My knees are bad, so stairs are a struggle.
? Do I have any health problems?
We adopted a little girl from Peru.
? Where is my daughter from?
I bake sourdough every Sunday.
? What do I bake?
My motorbike is a Ducati.
? What bike do I ride?
Karate has been my thing since school.
? What sport do I do?
""",
    ),
    "German": (
        """
Mein Hund Bruno ist ein Dackel und schon vierzehn.
? Was für ein Haustier habe ich?
Ich arbeite halbtags in einer Buchhandlung in Kassel.
? Wo arbeite ich?
Mein Geburtstag ist am 3. Mai.
? Wann bin ich geboren?
""",
        """
Ich lerne seit einem Jahr Geige.
? Welches Instrument lerne ich?
Meine Frau Petra mag keine Rosen.
? Welche Blumen mag meine Frau nicht?
Wir ziehen im Herbst nach Rostock um.
? Wohin ziehen wir?
""",
        """
Mein Auto ist ein roter Twingo.
? Welche Farbe hat mein Auto?
Ich trinke keinen Alkohol mehr.
? Trinke ich Alkohol?
Mein Sohn Jonas geht in die dritte Klasse.
? Wie heißt mein Kind?
""",
        """
Ich habe Höhenangst.
? Wovor fürchte ich mich?
Meine Schwester lebt in Oslo.
? Wo lebt meine Schwester?
Ich bin mit Karim verlobt.
? Wie heißt mein Verlobter?
Ich sammle Briefmarken aus Island.
? Was ist mein Hobby?
""",
        """
Ich bin Hebamme in Graz.
? Was bin ich von Beruf?
Unsere Zwillinge heißen Lea und Finn.
? Wie heißen meine Kinder?
Ich bin in Flensburg aufgewachsen.
? Wo bin ich groß geworden?
Nüsse vertrage ich nicht.
? Wogegen bin ich allergisch?
""",
        """
Ich leite eine Apotheke in Ulm.
? Wo arbeite ich?
Meine Katze heißt Minka.
? Habe ich Haustiere?
Ich bin Diabetikerin.
? Welche gesundheitlichen Probleme habe ich?
""",
    ),
    "French": (
        """
Je suis infirmier de nuit à Nantes.
? Quel est mon métier ?
Ma fille Lou a peur de l'eau.
? De quoi ma fille a-t-elle peur ?
J'ai arrêté de fumer en mars.
? Quand ai-je arrêté de fumer ?
""",
        """
Mon chat s'appelle Biscotte et il est roux.
? Comment s'appelle mon chat ?
Je ne supporte pas le piment.
? Qu'est-ce que je ne peux pas manger ?
Je pars au Japon en octobre avec ma sœur.
? Où vais-je en voyage cet automne ?
""",
        """
Mon mari est professeur de mathématiques.
? Que fait mon mari dans la vie ?
J'habite au quatrième étage sans ascenseur.
? À quel étage est-ce que j'habite ?
Je cours dix kilomètres chaque dimanche.
? Quel sport est-ce que je pratique ?
""",
        """
Je conduis une vieille Clio verte.
? Quelle voiture est-ce que j'ai ?
Je parle couramment l'arabe et le grec.
? Quelles langues est-ce que je parle ?
Ma sœur Inès vit à Lyon.
? Où habite ma sœur ?
Je prépare le concours d'avocat.
? Quel examen je prépare ?
""",
        """
J'ai une peur bleue des araignées.
? De quoi ai-je peur ?
Mon frère Théo est pompier.
? Quel est le métier de mon frère ?
Je suis née le 4 février à Brest.
? Quelle est ma date de naissance ?
Je fais de la poterie le jeudi.
? Quel est mon loisir ?
""",
        """
Je garde des enfants à domicile.
? Quel est mon travail ?
Je joue du hautbois.
? De quel instrument est-ce que je joue ?
Nous avons trois poules.
? Quels animaux ai-je ?
""",
    ),
    "Spanish": (
        """
Soy alérgica al polen y en primavera lo paso mal.
? ¿A qué soy alérgica?
Mi novio Iker trabaja de bombero.
? ¿A qué se dedica mi novio?
Tengo dos hermanos mayores.
? ¿Cuántos hermanos tengo?
""",
        """
Vivo en un pueblo cerca de Zaragoza.
? ¿Dónde vivo?
Toco el acordeón en una banda.
? ¿Qué instrumento toco?
Mi madre cumple setenta años en agosto.
? ¿Cuándo es el cumpleaños de mi madre?
""",
        """
No como carne desde hace diez años.
? ¿Qué dieta sigo?
Estoy ahorrando para comprar una furgoneta.
? ¿Para qué estoy ahorrando?
Mi perra Luna tiene miedo de los petardos.
? ¿Cómo se llama mi perra?
""",
        """
Me dan pánico las alturas.
? ¿A qué le tengo miedo?
Estudio derecho a distancia.
? ¿Qué estudio?
Nací en Rosario en 1985.
? ¿En qué año nací?
Mi coche es un Seat Ibiza.
? ¿Qué coche tengo?
""",
        """
Soy panadera y me levanto a las tres.
? ¿En qué trabajo?
Mi hija Vega tiene asma.
? ¿Qué enfermedad tiene mi hija?
Me mudé a Vigo hace un mes.
? ¿En qué ciudad vivo?
Hablo catalán y francés en casa.
? ¿Qué idiomas hablo?
""",
        """
Padezco del corazón.
? ¿Qué problemas de salud tengo?
Tengo un hámster llamado Pipo.
? ¿Qué mascota tengo?
Me caso en septiembre.
? ¿Cuándo es mi boda?
""",
    ),
    "Russian": (
        """
Я работаю учителем физики в школе.
? Кем я работаю?
Моего кота зовут Барсик.
? Как зовут моего кота?
Я не переношу лактозу.
? Что мне нельзя есть?
""",
        """
Мы с женой переезжаем в Казань весной.
? Куда мы переезжаем?
Мой сын Лёва занимается плаванием.
? Каким спортом занимается мой сын?
Я играю на гитаре с детства.
? На каком инструменте я играю?
""",
        """
У меня день рождения двенадцатого июля.
? Когда у меня день рождения?
Моя машина старая Нива.
? Какая у меня машина?
Я боюсь летать на самолётах.
? Чего я боюсь?
""",
        """
Моя жена Оля беременна.
? Как зовут мою жену?
Я коллекционирую марки.
? Какое у меня хобби?
Я вырос в Омске.
? Откуда я родом?
Я учу корейский язык.
? Какой язык я учу?
""",
        """
Я медсестра в роддоме.
? Какая у меня профессия?
У нас две дочки, Аня и Вера.
? Как зовут моих детей?
Я живу в Туле на пятом этаже.
? В каком городе я живу?
У меня аллергия на мёд.
? На что у меня аллергия?
""",
        """
Я вегетарианка.
? Что я не ем?
У меня высокое давление.
? Какие у меня проблемы со здоровьем?
Мы живём на даче.
? Где я живу?
""",
    ),
    "Japanese": (
        """
私は札幌で看護師をしています。
? 私の仕事は何ですか？
娘の名前はさくらで、五歳です。
? 娘は何歳ですか？
えびのアレルギーがあります。
? 私は何のアレルギーがありますか？
""",
        """
来年の春に京都へ引っ越します。
? どこへ引っ越す予定でしたか？
毎朝ヨガをしています。
? 毎朝何をしていますか？
犬を二匹飼っています。
? 私のペットは何ですか？
""",
        """
夫は銀行で働いています。
? 夫の職業は何ですか？
辛いものが苦手です。
? 私の苦手な食べ物は何ですか？
ピアノを習い始めました。
? 何の楽器を習っていますか？
""",
        """
大阪のマンションに住んでいます。
? 私はどこに住んでいますか？
妻の誕生日は七月七日です。
? 妻の誕生日はいつですか？
趣味は陶芸です。
? 私の趣味は何ですか？
猫の名前はミケです。
? うちの猫の名前は？
""",
        """
福岡で保育士をしています。
? 私の職業は何でしたっけ？
息子は野球部です。
? 息子は何のスポーツをしていますか？
高いところが怖いです。
? 私は何が怖いですか？
韓国語を勉強しています。
? 私は何を勉強していますか？
""",
        """
三味線を弾きます。
? 私の楽器は何ですか？
千葉に住んでいます。
? 私の住所はどこですか？
そばアレルギーです。
? 私は何を食べられませんか？
""",
    ),
    "Chinese": (
        """
我在成都一家医院当医生。
? 我的工作是什么？
我女儿叫小雨，今年七岁。
? 我女儿叫什么名字？
我对花生过敏。
? 我对什么过敏？
""",
        """
我下个月要搬到杭州。
? 我要搬到哪里？
我每天早上跑步五公里。
? 我做什么运动？
我养了一只橘猫叫团子。
? 我的猫叫什么？
""",
        """
我妻子是小学老师。
? 我妻子做什么工作？
我不吃香菜。
? 我不吃什么？
我正在学西班牙语。
? 我在学什么语言？
""",
        """
我住在苏州的一个老小区。
? 我住在哪里？
我妈妈下个月过六十岁生日。
? 我妈妈什么时候过生日？
我喜欢钓鱼。
? 我的爱好是什么？
我怕高。
? 我害怕什么？
""",
        """
我是小学数学老师。
? 我的职业是什么？
我儿子今年三岁。
? 我的孩子多大了？
我开一辆白色的特斯拉。
? 我开什么车？
我有高血压，每天吃药。
? 我有什么病？
""",
        """
我妹妹在英国留学。
? 我妹妹在哪里？
我吃素。
? 我的饮食习惯是什么？
我拉二胡。
? 我会什么乐器？
""",
    ),
    "Arabic": (
        """
أعمل مهندسًا في شركة مياه في عمّان.
? ما هي مهنتي؟
ابنتي اسمها ليلى وعمرها تسع سنوات.
? ما اسم ابنتي؟
عندي حساسية من البيض.
? مما أعاني من حساسية؟
""",
        """
سأنتقل إلى الدوحة في الصيف.
? إلى أين سأنتقل؟
أعزف على العود منذ الصغر.
? على أي آلة أعزف؟
أخي يدرس الطب في القاهرة.
? ماذا يدرس أخي؟
""",
        """
لا أشرب القهوة بعد الظهر.
? متى لا أشرب القهوة؟
قطتي اسمها مشمش.
? ما اسم قطتي؟
زوجتي حامل في الشهر السادس.
? في أي شهر حمل زوجتي؟
""",
        """
أسكن في حي قديم في فاس.
? أين أسكن؟
هوايتي صيد السمك.
? ما هي هوايتي؟
أخاف من المرتفعات.
? مم أخاف؟
سيارتي تويوتا بيضاء.
? ما نوع سيارتي؟
""",
        """
أعمل ممرضة في الرباط.
? ما وظيفتي؟
ولدت في حلب عام ١٩٨٠.
? أين ولدت؟
أتكلم التركية والفرنسية.
? ما هي اللغات التي أتحدثها؟
عندي ابنان، سامر وكريم.
? كم طفلا لدي؟
""",
        """
أنا نباتي.
? ماذا آكل؟
لدي كلب اسمه ركس.
? ما اسم كلبي؟
أعاني من الصداع النصفي.
? ما مرضي؟
""",
    ),
    "Hindi": (
        """
मैं जयपुर में बैंक में काम करता हूँ।
? मेरी नौकरी क्या है?
मेरी बेटी का नाम अनन्या है।
? मेरी बेटी का नाम क्या है?
मुझे मूंगफली से एलर्जी है।
? मुझे किस चीज़ से एलर्जी है?
""",
        """
हम अगले साल पुणे जा रहे हैं।
? हम कहाँ जा रहे हैं?
मैं तबला बजाता हूँ।
? मैं कौन सा वाद्य बजाता हूँ?
मेरे पति डॉक्टर हैं।
? मेरे पति क्या करते हैं?
""",
        """
मैं मांस नहीं खाता।
? मैं क्या नहीं खाता?
मेरे पास एक काली बिल्ली है।
? मेरा पालतू जानवर कौन सा है?
मुझे ऊँचाई से डर लगता है।
? मुझे किससे डर लगता है?
""",
        """
मैं लखनऊ में रहता हूँ।
? मैं कहाँ रहता हूँ?
मुझे बागवानी पसंद है।
? मेरा शौक क्या है?
मेरी पत्नी का जन्मदिन मई में है।
? मेरी पत्नी का जन्मदिन कब है?
मैं तमिल सीख रहा हूँ।
? मैं कौन सी भाषा सीख रहा हूँ?
""",
        """
मैं भोपाल में शिक्षिका हूँ।
? मेरा पेशा क्या है?
मुझे मधुमेह है।
? मुझे कौन सी बीमारी है?
मेरे दो बेटे हैं।
? मेरे कितने बच्चे हैं?
मैं सितार सीखती हूँ।
? मैं कौन सा वाद्ययंत्र सीखती हूँ?
""",
        """
मैं शाकाहारी हूँ।
? मैं क्या खाता हूँ?
मेरे कुत्ते का नाम शेरू है।
? मेरे पालतू का नाम क्या है?
मैं क्रिकेट खेलता हूँ।
? मैं कौन सा खेल खेलता हूँ?
""",
    ),
    "Portuguese": (
        """
Sou enfermeira num hospital em Braga.
? Qual é a minha profissão?
O meu filho Tomás faz anos em novembro.
? Quando faz anos o meu filho?
Não posso comer marisco.
? O que é que eu não posso comer?
""",
        """
Vou mudar-me para o Recife em janeiro.
? Para onde me vou mudar?
Toco cavaquinho aos sábados.
? Que instrumento toco?
A minha gata chama-se Pipoca.
? Como se chama a minha gata?
""",
        """
O meu marido é pescador.
? O que faz o meu marido?
Tenho medo de elevadores.
? De que tenho medo?
Estou a tirar a carta de condução.
? O que estou a aprender?
""",
        """
Moro num prédio sem elevador no Porto.
? Onde moro?
Tenho um Fiat Panda amarelo.
? Que carro tenho?
Sou casado com a Rita.
? Como se chama a minha mulher?
Coleciono moedas antigas.
? Qual é o meu passatempo?
""",
        """
Sou professora primária em Évora.
? Em que trabalho?
Tenho diabetes desde criança.
? Que doença tenho?
Cresci nos Açores.
? Onde cresci?
Falo russo em casa.
? Que línguas falo?
""",
        """
Sou alérgica a gatos.
? A que sou alérgica?
Vivo numa quinta no Alentejo.
? Onde é que eu vivo?
Tenho um papagaio.
? Que animal tenho?
""",
    ),
}
_BESIDE = {
    "English": (
        "The weather was awful all week.",
        "I repainted the fence.",
    ),
    "German": (
        "Gestern hat es den ganzen Tag geregnet.",
        "Ich habe den Zaun neu gestrichen.",
    ),
    "French": (
        "Il a plu toute la semaine.",
        "J'ai repeint la clôture.",
    ),
    "Spanish": (
        "Ha llovido toda la semana.",
        "He pintado la valla.",
    ),
    "Russian": (
        "Всю неделю шёл дождь.",
        "Я покрасил забор.",
    ),
    "Japanese": (
        "先週はずっと雨でした。",
        "柵を塗り直しました。",
    ),
    "Chinese": (
        "上周一直下雨。",
        "我重新刷了围栏。",
    ),
    "Arabic": (
        "أمطرت طوال الأسبوع.",
        "دهنت السور من جديد.",
    ),
    "Hindi": (
        "पूरे हफ्ते बारिश हुई।",
        "मैंने बाड़ को फिर से रंगा।",
    ),
    "Portuguese": (
        "Choveu a semana toda.",
        "Pintei a cerca.",
    ),
}
# Nothing of the user's life.
UNRELATED_QUESTIONS = {
    "English": (
        "My essay needs a better ending, any ideas?",
        "How do I tie my shoelaces faster?",
        "Why is my code so slow?",
        "Can you fix the grammar of my email?",
        "I need a regex for dates.",
        "How do I reset my router?",
        "What is the capital of Peru?",
        "My screen flickers, what can I do?",
    ),
    "German": (
        "Mein Drucker druckt nicht, was kann ich tun?",
        "Wie formatiere ich meine Festplatte?",
        "Kannst du meine Bewerbung kürzen?",
        "Was ist die Hauptstadt von Peru?",
    ),
    "French": (
        "Mon imprimante ne marche plus, que faire ?",
        "Comment installer Python sur mon ordinateur ?",
        "Corrige mon mail.",
        "Quelle est la capitale du Pérou ?",
    ),
    "Spanish": (
        "Mi impresora no funciona, ¿qué hago?",
        "¿Cómo instalo Python en mi ordenador?",
        "Corrige mi correo.",
        "¿Cuál es la capital de Perú?",
    ),
    "Russian": (
        "Мой принтер не печатает, что делать?",
        "Как мне установить Python?",
        "Исправь моё письмо.",
        "Какая столица Перу?",
    ),
    "Japanese": (
        "私のプリンターが動きません。どうすればいいですか？",
        "Pythonはどうやってインストールしますか？",
        "私のメールを直してください。",
        "ペルーの首都はどこですか？",
    ),
    "Chinese": (
        "我的打印机坏了，怎么办？",
        "我怎么安装Python？",
        "帮我改一下邮件。",
        "秘鲁的首都是哪里？",
    ),
    "Arabic": (
        "طابعتي لا تعمل، ماذا أفعل؟",
        "كيف أثبت بايثون على حاسوبي؟",
        "صحح رسالتي.",
        "ما عاصمة بيرو؟",
    ),
    "Hindi": (
        "मेरा प्रिंटर नहीं चल रहा, क्या करूँ?",
        "मैं पायथन कैसे इंस्टॉल करूँ?",
        "मेरा ईमेल ठीक करो।",
        "पेरू की राजधानी क्या है?",
    ),
    "Portuguese": (
        "A minha impressora não funciona, o que faço?",
        "Como instalo o Python no meu computador?",
        "Corrige o meu email.",
        "Qual é a capital do Peru?",
    ),
}


def _read(told: str, beside: tuple[str, str]) -> Person:
    lines = told.strip().splitlines()
    facts = tuple(
        Fact(fact, question.removeprefix("? "), ())
        for fact, question in zip(lines[::2], lines[1::2], strict=True)
    )
    return Person(facts, beside)


QUESTIONED = {
    language: [_read(told, _BESIDE[language]) for told in people]
    for language, people in _ASKED.items()
}
