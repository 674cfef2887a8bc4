"""Thirty more made-up people in ten languages, whose facts are of everyday words.

They were written without the rules in view, after `cue_people` had shaped these. Half of their
direct questions share no word with the fact. The marks are those of `cue_people`.
"""

from __future__ import annotations

from tests.bench.cue_people import Person, read_person

_TOLD = {
    "English": (
        """
* fyi my youngest, Tobias, is terrified of dogs since one bit him last summer
? which of my kids is scared of dogs?
+ Plan a Saturday outing for the family to a farm with lots of dogs.
~ Is a dog show a nice birthday trip for an eight-year-old?
* We keep kosher at home, so no mixing of meat and dairy.
? Do we follow any dietary laws at home?
+ Give me a kosher-friendly version of lasagna.
~ I want a cheeseburger recipe with a dairy sauce for tonight's dinner.
. I play the cello in an amateur orchestra on Wednesdays.
. Our roof was replaced in March.
""",
        """
* I can't stand flying, I take trains wherever I can.
? How do I prefer to travel?
+ Book ideas: a week in Portugal, flying out on the 3rd.
~ What train would you suggest from Berlin to Prague?
* I'm training for a half marathon in October and my left knee has been acting up.
? What race am I preparing for?
+ Write a leg workout that is heavy on lunges and deep knee bends.
~ How do people taper before marathons?
. My sister Noor runs a bakery in Leeds.
. I've been learning Welsh for two years.
""",
        """
* I'm colour-blind, red and green look the same to me.
? Is there anything about my eyesight you should know?
+ Make a bar chart where profits are green and losses are red.
~ Pick colours for the legend of a metro map.
* My mother-in-law passed away in January, she was called Philippa.
? What was the name of my mother-in-law?
+ Draft a Mother's Day post for our shop, mention mother-in-law cards too.
~ Draft a greeting card for Philippa's garden club.
. I drink my coffee black and far too often.
. I work night shifts at the harbour.
""",
    ),
    "German": (
        """
* Übrigens vertrage ich kein Gluten, ich hab Zöliakie.
? Welche Krankheit habe ich?
+ Welches Mehl ohne Gluten taugt für einen Hefezopf?
~ Such mir ein glutenfreies Lokal für heute Abend heraus.
* Meine Tochter Frieda ist taub und trägt ein Cochlea-Implantat.
? Wie heißt meine Tochter?
+ Welche Konzerte lohnen sich für jemanden, der taub ist?
~ Schlag Spiele für eine Gruppe mit tauben und hörenden Kindern vor.
. Ich restauriere in meiner Freizeit alte Motorräder.
. Im Keller steht noch das Klavier meiner Oma.
""",
        """
* ich fahr kein auto mehr, hab den führerschein vor zwei jahren abgegeben
? Habe ich noch einen Führerschein?
+ Lohnt sich ein Auto für einen Wocheneinkauf im Umland?
~ Plane eine Rundreise mit gemieteten Autos durch die Toskana.
* Mein Chef, Herr Brandauer, besteht auf formellen Mails mit Siezen.
? Wie heißt mein Chef?
+ Schreib eine kurze Mail an Brandauer, dass ich morgen später komme.
~ Formuliere formell eine Absage an einen Lieferanten.
. Wir bauen Kartoffeln und Zucchini im Schrebergarten an.
. Mein Bruder studiert in Graz Geologie.
""",
        """
* Seit der Bandscheiben-OP darf ich nichts Schweres heben.
? Was darf ich seit meiner OP nicht?
+ Wer hilft beim Umzug, wenn viel Schweres die Treppe hoch muss?
~ Stell mir ein Training mit schweren Hanteln zusammen.
* Ich spreche mit meiner Frau nur Ungarisch, sie heißt Ilona.
? Welche Sprache spreche ich mit meiner Frau?
+ Schreib ein Liebesgedicht auf Ungarisch.
~ Welche ungarischen Filme aus den Siebzigern lohnen sich?
. Unser Kater ist sechzehn Jahre alt.
. Ich sammle Briefmarken aus Ostafrika.
""",
    ),
    "French": (
        """
* Au fait, je suis enceinte de cinq mois.
? De combien de mois suis-je enceinte ?
+ Quel yoga convient à une femme enceinte ?
~ Quels vêtements vont bien aux femmes enceintes pour un mariage ?
* Mon fils Anselme ne supporte pas le lactose.
? Qu'est-ce que mon fils ne supporte pas ?
+ Une crème brûlée sans lactose, c'est possible ?
~ Prépare un goûter d'anniversaire pour Anselme et six copains.
. J'habite au quatrième étage sans ascenseur.
. Mon père collectionnait les montres soviétiques.
""",
        """
* je bosse comme infirmière de nuit à l'hôpital de Nantes
? Où est-ce que je travaille ?
+ Comment mieux dormir la journée quand on est infirmière ?
~ Quels cadeaux plaisent aux infirmières pour Noël ?
* Je déteste la coriandre, ça a un goût de savon pour moi.
? Quelle herbe est-ce que je déteste ?
+ Une recette de guacamole avec beaucoup de coriandre, vite !
~ Trouve un plat thaï avec des herbes au goût savonneux ou non.
. Nous avons acheté une vieille péniche l'an dernier.
. Ma voisine Odile s'occupe de mes plantes.
""",
        """
* Je suis daltonien, je confonds le bleu et le violet.
? Quel problème de vue ai-je ?
+ Dessine un logo en violet et en bleu pour mon club.
~ Quelles palettes conviennent aux daltoniens ?
* On a deux perroquets qui s'appellent Brahms et Ravel.
? Comment s'appellent mes perroquets ?
+ Quelles plantes sont toxiques pour les perroquets ?
~ Un perroquet peut-il voyager en avion ?
. Je chante dans une chorale le mardi soir.
. Mon grand-père venait de Bessarabie.
""",
    ),
    "Spanish": (
        """
* Oye, que sepas que soy celíaca desde niña.
? ¿Qué enfermedad tengo desde niña?
+ Recomiéndame una pizzería que sirva a gente celíaca.
~ ¿Qué postres valen para invitados celíacos?
* Mi marido Ramiro es sordo del oído izquierdo.
? ¿De qué oído es sordo mi marido?
+ ¿Dónde conviene sentar a una persona sorda de un oído en la mesa?
~ Busca actividades de grupo pensadas para sordos.
. Los domingos hago castillos humanos con mi colla.
. Tengo un huerto con pimientos y calabacines.
""",
        """
* nunca cojo el metro porque me da claustrofobia
? ¿Por qué no cojo el metro?
+ ¿Cuál es la ruta más corta en metro hasta el aeropuerto?
~ ¿Merece la pena una visita a una cueva para un claustrofóbico?
* Trabajo de traductora de noruego en una editorial pequeña.
? ¿De qué idioma traduzco?
+ ¿Qué novelas en noruego están de moda?
~ ¿Cuánto cobran las traductoras por página?
. Mi gata se llama Croqueta.
. Hace poco me compré una bici eléctrica.
""",
        """
* Me operaron del corazón en 2021 y llevo un marcapasos.
? ¿Qué llevo desde la operación?
+ ¿Se puede usar una placa de inducción con marcapasos?
~ ¿Qué ejercicios recomiendan tras una operación cardíaca?
* Mis hijas gemelas, Alba y Vega, cumplen años el 9 de mayo.
? ¿Cuándo cumplen años mis hijas?
+ Ideas para una fiesta doble de gemelas.
~ ¿Se visten igual los gemelos en el colegio?
. Odio madrugar, y más en invierno.
. Mi suegro es apicultor en Soria.
""",
    ),
    "Portuguese": (
        """
* Só pra avisar: sou diabético tipo 1 e uso bomba de insulina.
? Que tipo de diabetes eu tenho?
+ Monte um café da manhã de hotel para quem é diabético.
~ Quais doces são liberados para diabéticos?
* A minha filha Marisol é vegana há três anos.
? Desde quando minha filha é vegana?
+ Como fazer uma feijoada vegana?
~ Onde comprar queijos veganos em Lisboa?
. Toco cavaquinho numa roda de samba.
. Moramos num sobrado antigo perto do rio.
""",
        """
* não tomo café, me dá enxaqueca na hora
? O que me dá enxaqueca?
+ Escolhe um bom café para a reunião de sexta.
~ Quais cafés especiais estão em alta?
* Sou bombeiro voluntário em Braga desde 2015.
? Desde quando sou bombeiro?
+ Que presente dar a um bombeiro?
~ Quanto ganham os bombeiros na Alemanha?
. A minha irmã Iolanda vive em Cabo Verde.
. Comprei um telescópio em segunda mão.
""",
        """
* Tenho medo de altura, nem em varanda eu fico.
? Do que eu tenho medo?
+ Que passeios com vista de altura existem no Rio?
~ Procure um hotel com varandas grandes no vigésimo andar.
* O meu cão-guia chama-se Baltazar, sou cego.
? Como se chama o meu cão?
+ Como um cego usa o metrô de São Paulo?
~ Existem jogos de tabuleiro para cegos?
. Gosto de fado e de heavy metal.
. O meu carro é um Fusca de 1974.
""",
    ),
    "Russian": (
        """
* Кстати, у меня непереносимость лактозы.
? Чего я не переношу?
+ Придумай десерт без лактозы на восемь человек.
~ Бывает ли безлактозное мороженое?
* Мой сын Мирон заикается и стесняется выступать.
? Как зовут моего сына?
+ Напиши сценарий утренника, чтобы Мирон тоже участвовал.
~ Какие игры полезны заикающимся детям?
. По средам я хожу на занятия по керамике.
. Мы купили дачу под Тверью.
""",
        """
* я боюсь лифтов и хожу только пешком по лестнице
? Чего я боюсь?
+ Подбери квартиру на двенадцатом этаже с видом и без лестницы.
~ Сколько стоит замена лифта в доме?
* Моя жена Земфира вегетарианка, рыбу тоже не ест.
? Кто моя жена по питанию?
+ Составь меню на юбилей: рыба, салаты, закуски.
~ Что приготовить вегетарианцам на шашлыки?
. Я преподаю химию в колледже.
. Наш пёс Барон уже старенький.
""",
        """
* После инсульта у меня плохо работает правая рука.
? Какая рука у меня плохо работает?
+ Посоветуй музыкальный инструмент, где нужна одна рука.
~ Какие бывают занятия для людей, перенёсших инсульты?
* В ноябре я уезжаю работать на Шпицберген.
? Куда я уезжаю в ноябре?
+ Какая одежда нужна на Шпицберген?
~ Расскажи о погоде на Шпицбергене.
. Собираю старые карты города.
. Мой любимый писатель Платонов.
""",
    ),
    "Hindi": (
        """
* वैसे, मुझे दूध नहीं पचता।
? मुझे क्या नहीं पचता?
+ दूध वाली कोई अच्छी मिठाई बताओ।
~ दूधवाली चाय के अलावा सुबह क्या पिएँ?
* मेरी बेटी अनन्या सुन नहीं सकती और श्रवण यंत्र लगाती है।
? मेरी बेटी का नाम क्या है?
+ अनन्या के लिए स्कूल का परिचय लिख दो।
~ श्रवण यंत्रों की बैटरी कितने दिन चलती है?
. मैं हर रविवार को तबला सीखता हूँ।
. हमने पिछले साल नया ट्रैक्टर खरीदा।
""",
        """
* मैं शाकाहारी हूँ और अंडे भी नहीं खाती।
? क्या मैं अंडे खाती हूँ?
+ अंडे के बिना केक कैसे बनाएँ?
~ शाकाहारियों के लिए प्रोटीन के स्रोत बताओ।
* मुझे ऊँचाई से बहुत डर लगता है।
? मुझे किससे डर लगता है?
+ ऊँचाई वाले पुल पर घूमने की योजना बना दो।
~ ऊँचाइयों पर रहने वाले पक्षी कौन से हैं?
. मेरे दादाजी जयपुर में घड़ीसाज़ थे।
. मुझे पुराने रेडियो जमा करना पसंद है।
""",
        """
* मेरे पिताजी को पार्किंसन है, वे हमारे साथ रहते हैं।
? मेरे पिताजी को क्या है?
+ पार्किंसन में कौन सी कसरत ठीक है?
~ पिताजी के जन्मदिन पर कविता लिखो।
* मेरा दफ़्तर पुणे में है और मैं मंगलवार को छुट्टी रखता हूँ।
? मेरा दफ़्तर कहाँ है?
+ पुणे में अच्छे किराए के घर कैसे ढूँढें?
~ दफ़्तरों के लिए सस्ती कुर्सियाँ सुझाओ।
. हमारी बिल्ली का नाम मखमल है।
. मैं बाँसुरी की मरम्मत करता हूँ।
""",
    ),
    "Japanese": (
        """
* ちなみに私は蕎麦アレルギーがあります。
? 私は何のアレルギーがありますか？
+ 長野で蕎麦のおいしい店を三つ選んで。
~ 年越しそばの代わりになる料理を考えて。
* 息子の蓮は車酔いしやすいです。
? 車酔いしやすいのは誰ですか？
+ 車酔いに効く飲み物は？
~ 酔いやすい子ども連れのドライブ計画を立てて。
. 毎週木曜に合気道の稽古に通っています。
. 去年、古い蔵を改装しました。
""",
        """
* 補聴器を使っているので電話は苦手です。
? 電話が苦手なのはなぜですか？
+ 電話での面接の準備リストを作って。
~ 補聴器の電池はどこで買える？
* 妻は妊娠七か月です。
? 妻は妊娠何か月ですか？
+ 妊娠中でも入れる温泉を探して。
~ 妊婦さんへの贈り物は何がいい？
. 実家は青森でりんごを作っています。
. 休日はたいてい将棋を指しています。
""",
        """
* ベジタリアンなので出汁も昆布だけにしています。
? 出汁は何を使っていますか？
+ おでんの出汁の取り方を教えて。
~ 昆布だしを使うスープのレシピがほしい。
* 右膝の靱帯を切って手術したばかりです。
? 最近どこを手術しましたか？
+ 靱帯に負担のない運動を提案して。
~ 膝に優しい登山コースはどこ？
. 犬の名前はごま塩です。
. 蚤の市で古いカメラを集めています。
""",
    ),
    "Chinese": (
        """
* 对了，我有乳糖不耐受。
? 我对什么不耐受？
+ 推荐几款不含乳糖的甜品。
~ 乳糖酶片应该什么时候吃？
* 我女儿小棠怕黑，晚上一定要开灯。
? 我女儿怕什么？
+ 给小棠写一个睡前故事。
~ 怕黑的孩子怎么安排露营？
. 我每周三去学古琴。
. 去年我们把老房子卖了。
""",
        """
* 我不开车，平时都骑电动车上班。
? 我平时怎么上班？
+ 电动车冬天续航怎么提高？
~ 自驾游要开车十个小时，路线怎么排？
* 我太太是回族，家里不吃猪肉。
? 我家不吃什么肉？
+ 用猪肉做一道年夜饭的主菜。
~ 回族人过什么节日？
. 我弟弟在青岛造帆船。
. 我喜欢收集旧邮票。
""",
        """
* 我做过心脏支架手术，不能剧烈运动。
? 我做过什么手术？
+ 给我安排一个剧烈的减脂训练。
~ 心脏不好的人能去高原吗？
* 我的上司姓欧阳，他不喜欢冗长的邮件。
? 我的上司姓什么？
+ 给欧阳写一封请假邮件。
~ 冗长的报告怎么缩写成一页？
. 我家的猫叫豆包。
. 我在练习左手写字。
""",
    ),
    "Arabic": (
        """
* بالمناسبة، أنا مصاب بداء السكري من النوع الأول.
? بأي نوع من السكري أنا مصاب؟
+ ما الفطور المناسب لمريض السكري؟
~ هل توجد حلويات لمرضى سكري الحمل؟
* ابنتي رغد تخاف من القطط كثيرا.
? ممن تخاف ابنتي؟
+ أين أجد مقهى مليئا بالقطط في إسطنبول؟
~ كيف أعتني بقطة صغيرة في البيت؟
. أعزف على العود مساء كل خميس.
. اشترينا مزرعة زيتون قرب إربد.
""",
        """
* لا أركب الطائرات أبدا، أسافر بالقطار فقط.
? كيف أسافر عادة؟
+ ابحث لي عن أرخص الطائرات إلى مدريد.
~ كم تستغرق رحلة القطارات من القاهرة إلى أسوان؟
* زوجي كفيف ويستعمل قارئ الشاشة.
? ماذا يستعمل زوجي؟
+ اقترح ألعابا يمكن أن يلعبها شخص كفيف.
~ كيف يطبخ المكفوفون بأمان؟
. أخي عدنان يصلح الساعات القديمة.
. أحب قراءة روايات الخيال العلمي.
""",
        """
* أجريت عملية في الظهر ولا أستطيع حمل الأشياء الثقيلة.
? أين أجريت عمليتي؟
+ اكتب لي برنامج رفع الأثقال للظهر.
~ من ينقل أثاثا ثقيلا إلى الطابق الخامس؟
* أعمل صيدلانية في مستشفى صغير في صفاقس.
? ما مهنتي؟
+ ما واجبات صيدلانية في رمضان؟
~ ما الذي تبيعه الصيدليات غير الأدوية؟
. قطتي اسمها بندق.
. أتعلم اللغة السويدية منذ سنتين.
""",
    ),
}
_UNRELATED = {
    "English": """
What's the capital of Mongolia and how many people live there?
Refactor this: for i in range(len(xs)): print(xs[i])
lol that's brilliant, cheers
Could you explain how mortgages with a variable rate work?
My essay on the Thirty Years' War needs a stronger introduction, can you help me?
Convert 450 pounds sterling to Norwegian kroner.
ok do the second one, but shorter
Tell me a joke about penguins.
I need a regex that matches ISO timestamps.
What did the central bank decide yesterday?
""",
    "German": """
Wie hoch ist der Mount Kenya?
Passt, danke dir, mach weiter so
Erklär mir den Unterschied zwischen TCP und UDP.
Kannst du meinen Lebenslauf etwas knapper formulieren?
Was bedeutet das Wort „Habseligkeiten"?
Rechne 18 Prozent von 2340 aus.
Nenn mir fünf Romane von Thomas Bernhard.
Ich brauche eine SQL-Abfrage, die doppelte Zeilen löscht.
nee, lieber die erste Variante
Wer gewann 1990 den Nobelpreis für Chemie?
""",
    "French": """
Quelle est la superficie de la Finlande ?
ok parfait, merci beaucoup, on continue
Explique-moi la différence entre un astéroïde et une comète.
Corrige l'orthographe de cette lettre à la mairie.
Combien font 17 fois 43 ?
J'ai besoin d'une fonction Python qui trie un dictionnaire.
Raconte-moi une blague sur les Belges.
Peux-tu reformuler ton dernier paragraphe ?
Qui a peint La Liberté guidant le peuple ?
Que penses-tu des voitures à hydrogène ?
""",
    "Spanish": """
¿Quién escribió La Regenta?
vale, genial, sigue con lo otro
Explícame qué es la inflación subyacente.
¿Cuántos satélites tiene Júpiter?
Necesito un script de bash que renombre archivos.
Hazme un resumen de la Guerra de los Cien Años.
No me convence, prueba con otro tono.
¿Qué hora es ahora en Tokio?
Traduce al alemán: el barco zarpa mañana.
¿Puedes mejorar el título de mi presentación?
""",
    "Portuguese": """
Qual é a moeda da Tailândia?
beleza, valeu, pode continuar
Explique a fotossíntese em três frases.
Quanto é 15% de 860?
Preciso de uma consulta SQL com dois joins.
Quem descobriu o rádio e o polônio?
Gostei mais da segunda opção.
Resuma este artigo em cinco tópicos.
Você pode revisar a minha carta de apresentação?
Conte uma piada sobre advogados.
""",
    "Russian": """
Сколько лететь до Марса?
ок, супер, давай дальше
Объясни, что такое рекурсия.
Переведи на французский: завтра будет дождь.
Кто написал оперу «Князь Игорь»?
Мне нужен скрипт для переименования файлов.
Сократи этот абзац вдвое.
Чем отличается вирус от бактерии?
Можешь улучшить моё резюме?
Сколько будет 37 умножить на 48?
""",
    "Hindi": """
नेपाल की राजधानी क्या है?
ठीक है, बढ़िया, आगे बढ़ो
पाइथन में सूची को कैसे क्रमबद्ध करें?
प्रकाश संश्लेषण को तीन वाक्यों में समझाओ।
ताजमहल किसने बनवाया था?
इस अनुच्छेद को छोटा कर दो।
मेरे निबंध का शीर्षक और अच्छा बना दो।
२५ का १२ प्रतिशत कितना होता है?
कोई चुटकुला सुनाओ।
शेयर बाज़ार कल क्यों गिरा?
""",
    "Japanese": """
モンゴルの首都はどこですか？
了解、ありがとう、続けて
再帰とは何かを説明して。
この文章を半分の長さにしてください。
明治維新は何年に始まりましたか？
CSVを読み込むPythonコードを書いて。
私の自己紹介文をもう少し丁寧にして。
木星の衛星はいくつありますか？
面白いなぞなぞを一つ出して。
インフレ率はどうやって計算するの？
""",
    "Chinese": """
蒙古国的首都是哪里？
好的，谢谢，继续吧
解释一下什么是递归。
把这段话改短一点。
明朝是哪一年灭亡的？
写一个读取CSV文件的Python函数。
帮我把简历写得更专业一些。
木星有多少颗卫星？
讲一个关于律师的笑话。
一百二十的百分之十五是多少？
""",
    "Arabic": """
ما عاصمة منغوليا؟
حسنا، ممتاز، أكمل من فضلك
اشرح لي معنى الاستدعاء الذاتي في البرمجة.
من كتب رواية الأيام؟
لخص هذه الفقرة في جملتين.
كم يساوي ١٧ في ٤٣؟
اكتب دالة بايثون لترتيب قائمة.
هل يمكنك تحسين سيرتي الذاتية؟
ما الفرق بين المناخ والطقس؟
احك لي نكتة عن المحامين.
""",
}
MORE_PEOPLE: dict[str, tuple[Person, ...]] = {
    language: tuple(read_person(told) for told in people) for language, people in _TOLD.items()
}
MORE_UNRELATED = {language: lines.strip().splitlines() for language, lines in _UNRELATED.items()}
