"""Forty made-up people in ten languages: what they tell, and tasks that touch it without naming it.

By language, four people. Each has two facts with cues, and two distractors. A cue has a word in
common with its fact, another form of one, a synonym, or nothing. Nobody here is real.
"""

from __future__ import annotations

from typing import NamedTuple


class Cue(NamedTuple):
    """kind: word, stem, synonym or nothing."""

    kind: str
    text: str


class Fact(NamedTuple):
    """What a person tells. question: asks for it directly."""

    text: str
    question: str
    cues: tuple[Cue, ...]


class Person(NamedTuple):
    """facts: with cues. distractors: what else they tell."""

    facts: tuple[Fact, ...]
    distractors: tuple[str, ...]


def read_person(told: str) -> Person:
    """Read a person: facts with their cues, `+` word, `~` stem, `=` synonym, `-` nothing."""
    kinds = {"+": "word", "~": "stem", "=": "synonym", "-": "nothing"}
    facts: list[Fact] = []
    distractors: list[str] = []
    for line in told.strip().splitlines():
        mark, _, text = line.strip().partition(" ")
        if mark == "*":
            facts.append(Fact(text, "", ()))
        elif mark == "?":
            facts[-1] = facts[-1]._replace(question=text)
        elif mark == ".":
            distractors.append(text)
        else:
            facts[-1] = facts[-1]._replace(cues=(*facts[-1].cues, Cue(kinds[mark], text)))
    return Person(tuple(facts), tuple(distractors))


_TOLD = {
    "English": """
* I am severely allergic to hazelnuts.
? What am I allergic to?
+ Put together a brunch menu with one dish made of hazelnuts for Sunday.
~ Which hazelnut spread goes well on toast?
= Put together a box of pralines with nougat for my desk.
* I use a wheelchair since my accident.
? What do I use since my accident?
+ How wide is a door that a wheelchair fits through?
~ Are there museums in Ghent that rent out wheelchairs?
. My brother Tom repairs old radios.
. I moved into a flat above a bakery.

* I play the cello in an amateur orchestra.
? What instrument do I play?
+ How often should the strings of a cello be replaced?
~ Name three famous concertos for cellos.
= Which string instruments have a deep tone?
* My daughter Ottilie has asthma.
? What does my daughter have?
+ Plan a walk for a day with a lot of pollen, with asthma in mind.
~ Is chlorinated air a problem for asthmatics?
. Our neighbour grows enormous pumpkins.
. I work night shifts at the harbour.

* I cannot stand coriander in any dish.
? Which herb can I not stand?
+ Give a curry paste that works without coriander.
~ What grows beside corianders in a small bed?
- Plan the food for a garden party.
* I am training for a triathlon in August.
? What am I training for?
+ Lay out a shopping list of gear for a triathlon.
~ What do triathletes eat on the last evening?
. My flatmate collects stamps from Mongolia.
. I studied geology for two years.

* I keep three tortoises in the garden.
? Which animals do I keep in the garden?
+ How cold may it get before tortoises hibernate?
~ Draw up a feeding plan for a tortoise.
= Which reptiles live longest?
* My knee surgery is on the third of June.
? When is my knee surgery?
+ What should be packed for a surgery with two nights away?
~ How long do surgeons stay in training?
. I sing in the shower every morning.
. My cousin runs a ferry company.
""",
    "German": """
* Ich bin gegen Haselnüsse allergisch.
? Wogegen bin ich allergisch?
+ Stell ein Frühstück zusammen, gern auch mit Haselnüsse aus dem Ofen.
~ Wie lange hält ein Haselnusskuchen im Kühlschrank?
= Welche Pralinen mit Nougat sind gerade beliebt?
* Seit meinem Unfall sitze ich im Rollstuhl.
? Worin sitze ich seit meinem Unfall?
+ Wie breit muss eine Tür sein, damit ein Rollstuhl hindurchpasst?
~ Gibt es in Gent Museen, die Rollstühle verleihen?
. Mein Bruder Tom repariert alte Radios.
. Ich wohne über einer Bäckerei.

* Ich spiele Cello in einem Laienorchester.
? Welches Instrument spiele ich?
+ Wie oft sollten die Saiten am Cello gewechselt werden?
~ Nenne drei berühmte Cellokonzerte.
= Welche Streichinstrumente klingen tief?
* Meine Tochter Ottilie hat Asthma.
? Was hat meine Tochter?
+ Plane einen Ausflug bei Pollenflug, geeignet bei Asthma.
~ Ist Chlorluft für Asthmatiker ein Problem?
. Unser Nachbar züchtet riesige Kürbisse.
. Ich arbeite nachts am Hafen.

* Ich kann Koriander nicht ausstehen.
? Welches Kraut kann ich nicht ausstehen?
+ Eine Currypaste, die auch ohne Koriander schmeckt, bitte.
~ Was wächst gut neben Koriandersamen im Beet?
- Plane das Essen für ein Gartenfest.
* Ich trainiere für einen Triathlon im August.
? Wofür trainiere ich?
+ Eine Einkaufsliste mit Ausrüstung für einen Triathlon.
~ Was essen Triathleten am letzten Abend?
. Meine Mitbewohnerin sammelt Briefmarken aus der Mongolei.
. Ich habe zwei Jahre Geologie studiert.

* Ich halte drei Schildkröten im Garten.
? Welche Tiere halte ich im Garten?
+ Ab welcher Kälte gehen Schildkröten in den Winterschlaf?
~ Entwirf einen Futterplan für eine Schildkröte.
= Welche Reptilien werden am ältesten?
* Meine Knieoperation ist am dritten Juni.
? Wann ist meine Knieoperation?
+ Was gehört für eine Knieoperation mit zwei Nächten in die Tasche?
~ Wie verlaufen Knieoperationen heute?
. Ich singe jeden Morgen unter der Dusche.
. Mein Cousin leitet eine Fährgesellschaft.
""",
    "French": """
* Je suis allergique aux noisettes.
? À quoi suis-je allergique ?
+ Compose un goûter avec une pâte aux noisettes maison.
~ Quelle tarte à la noisette se garde deux jours ?
= Quels chocolats au praliné offrir ?
* Je me déplace en fauteuil roulant, un modèle pliable.
? Comment est-ce que je me déplace ?
+ Quel coffre de voiture accueille un fauteuil pliable ?
~ Existe-t-il des vélos pliables pour la ville ?
. Mon frère Tom répare de vieilles radios.
. J'habite au-dessus d'une boulangerie.

* Je joue du violoncelle dans un orchestre amateur.
? De quel instrument est-ce que je joue ?
+ Quand faut-il changer les cordes d'un violoncelle ?
~ Cite trois concertos pour violoncelles.
= Quels instruments à cordes ont un son grave ?
* Ma fille Odile est asthmatique.
? De quoi souffre ma fille ?
+ Organise une sortie au printemps adaptée à une personne asthmatique.
~ L'air chloré gêne-t-il les asthmatiques ?
. Notre voisin cultive d'énormes citrouilles.
. Je travaille la nuit au port.

* Je déteste la coriandre.
? Quelle herbe est-ce que je déteste ?
+ Une pâte de curry qui se passe de coriandre, s'il te plaît.
~ Que planter à côté des coriandres ?
- Prévois le repas d'une fête au jardin.
* Je m'entraîne pour un triathlon en août.
? Pour quelle épreuve est-ce que je m'entraîne ?
+ Dresse la liste du matériel pour un triathlon.
~ Que mangent les participants aux triathlons la veille ?
. Ma colocataire collectionne les timbres de Mongolie.
. J'ai étudié la géologie deux ans.

* J'élève trois tortues dans le jardin.
? Quels animaux est-ce que j'élève dans le jardin ?
+ À partir de quel froid les tortues hibernent-elles ?
~ Établis un plan de repas pour une tortue.
= Quels reptiles vivent le plus longtemps ?
* Mon opération de la cheville est le trois juin.
? Quand est mon opération ?
+ Que glisser dans un sac pour une opération de la cheville ?
~ Comment renforcer les chevilles au quotidien ?
. Je chante sous la douche tous les matins.
. Mon cousin dirige une compagnie de ferries.
""",
    "Spanish": """
* Soy alérgica a las avellanas.
? ¿A qué soy alérgica?
+ Arma una merienda con crema de avellanas casera.
~ ¿Qué tarta de avellana aguanta dos días?
= ¿Qué bombones de praliné están de moda?
* Uso silla de ruedas desde mi accidente, una plegable.
? ¿Qué uso desde mi accidente?
+ ¿En qué maletero cabe algo plegable y ancho?
~ ¿Existen bicicletas plegables para la ciudad?
. Mi hermano Tomás repara radios viejas.
. Vivo encima de una panadería.

* Toco el violonchelo en una orquesta de aficionados.
? ¿Qué instrumento toco?
+ ¿Cada cuánto se cambian las cuerdas de un violonchelo?
~ Nombra tres conciertos para violonchelos.
= ¿Qué instrumentos de cuerda suenan graves?
* Mi hija Otilia es asmática.
? ¿Qué tiene mi hija?
+ Planea una salida en primavera apta para una niña asmática.
~ ¿El aire con cloro molesta a los asmáticos?
. Nuestro vecino cultiva calabazas enormes.
. Trabajo de noche en el puerto.

* No soporto el cilantro.
? ¿Qué hierba no soporto?
+ Una pasta de curry que funcione sin cilantro, por favor.
~ ¿Qué se planta al lado de los cilantros?
- Prepara la comida de una fiesta en el jardín.
* Entreno para un triatlón en agosto.
? ¿Para qué entreno?
+ Haz una lista de material para un triatlón.
~ ¿Qué cenan en los triatlones los participantes?
. Mi compañera de piso colecciona sellos de Mongolia.
. Estudié geología dos años.

* Crío tres tortugas en el jardín.
? ¿Qué animales crío en el jardín?
+ ¿Con qué frío hibernan las tortugas?
~ Diseña un plan de comidas para una tortuga.
= ¿Qué reptiles viven más?
* Me operan del tobillo el tres de junio.
? ¿Cuándo me operan?
+ ¿Qué zapatos convienen después de una lesión de tobillo?
~ ¿Cómo se fortalecen los tobillos?
. Canto en la ducha cada mañana.
. Mi primo dirige una compañía de transbordadores.
""",
    "Portuguese": """
* Sou alérgica a avelãs.
? A que sou alérgica?
+ Monte um lanche com creme de avelãs caseiro.
~ Que torta de avelã dura dois dias?
= Que bombons de praliné estão na moda?
* Uso cadeira de rodas desde o meu acidente, uma dobrável.
? O que uso desde o meu acidente?
+ Em que porta-malas cabe algo dobrável e largo?
~ Existem bicicletas dobráveis para a cidade?
. O meu irmão Tomás conserta rádios velhos.
. Moro em cima de uma padaria.

* Toco violoncelo numa orquestra amadora.
? Que instrumento toco?
+ De quanto em quanto tempo se trocam as cordas de um violoncelo?
~ Cite três concertos para violoncelos.
= Que instrumentos de corda têm som grave?
* A minha filha Otília é asmática.
? O que tem a minha filha?
+ Planeje um passeio na primavera adequado para uma menina asmática.
~ O ar com cloro incomoda os asmáticos?
. O nosso vizinho cultiva abóboras enormes.
. Trabalho à noite no porto.

* Detesto coentro.
? Que erva detesto?
+ Uma pasta de curry que funcione sem coentro, por favor.
~ O que plantar ao lado dos coentros?
- Prepare a comida de uma festa no jardim.
* Treino para um triatlo em agosto.
? Para que treino?
+ Faça uma lista de material para um triatlo.
~ O que comem nos triatlos os participantes?
. A minha colega de casa coleciona selos da Mongólia.
. Estudei geologia dois anos.

* Crio três tartarugas no jardim.
? Que animais crio no jardim?
+ Com que frio hibernam as tartarugas?
~ Elabore um plano de refeições para uma tartaruga.
= Que répteis vivem mais?
* A cirurgia do meu tornozelo é no dia três de junho.
? Quando é a minha cirurgia?
+ Que sapatos convêm depois de uma lesão no tornozelo?
~ Como se fortalecem os tornozelos?
. Canto no chuveiro todas as manhãs.
. O meu primo dirige uma empresa de balsas.
""",
    "Russian": """
* У меня аллергия на фундук.
? На что у меня аллергия?
+ Составь полдник, в котором есть фундук.
~ Сколько дней хранится торт с фундуком?
= Какие конфеты с нугой сейчас в моде?
* После аварии я передвигаюсь на инвалидной коляске.
? На чём я передвигаюсь после аварии?
+ Какой ширины должна быть дверь для инвалидной техники?
~ Сдают ли музеи Гента инвалидные кресла?
. Мой брат Том чинит старые радиоприёмники.
. Я живу над пекарней.

* Я играю на виолончели в любительском оркестре.
? На каком инструменте я играю?
+ Как часто меняют струны на виолончели?
~ Назови три знаменитых концерта для виолончелей.
= Какие струнные инструменты звучат низко?
* У моей дочери Оттилии астма.
? Чем больна моя дочь?
+ Спланируй прогулку весной, когда у ребёнка астма.
~ Вреден ли хлор при астме?
. Наш сосед выращивает огромные тыквы.
. Я работаю ночью в порту.

* Я терпеть не могу кинзу.
? Какую траву я терпеть не могу?
+ Чем в пасте карри заменить кинзу?
~ Что посадить рядом с кинзой?
- Продумай еду для праздника в саду.
* Я готовлюсь к триатлону в августе.
? К чему я готовлюсь?
+ Собери список снаряжения к триатлону.
~ Что едят участники триатлонов накануне?
. Моя соседка по квартире собирает марки Монголии.
. Я два года изучал геологию.

* Я держу трёх черепах в саду.
? Каких животных я держу в саду?
+ При каком холоде у черепах начинается спячка?
~ Составь план питания для черепахи.
= Какие рептилии живут дольше всех?
* Третьего июня мне оперируют лодыжку.
? Когда меня оперируют?
+ Какая обувь щадит лодыжку после травмы?
~ Как укрепить лодыжки дома?
. Каждое утро я пою в душе.
. Мой двоюродный брат руководит паромной компанией.
""",
    "Japanese": """
* 私はヘーゼルナッツアレルギーです。
? 私は何のアレルギーですか。
+ ヘーゼルナッツを使った朝食の献立を組んでください。
~ ヘーゼルの木は庭で育ちますか。
= 人気のプラリネを三つ挙げて。
* 事故のあと車椅子を使っています。
? 事故のあと私は何を使っていますか。
+ 車椅子が通れるドアの幅はどのくらい?
~ 電動車椅子の値段を比べて。
. 弟のトムは古いラジオを修理しています。
. パン屋の上に住んでいます。

* 市民オーケストラでチェロを弾いています。
? 私はどの楽器を弾いていますか。
+ チェロの弦はどのくらいで替えるべき?
~ 有名なチェロ協奏曲を三つ挙げて。
= 低い音の弦楽器は何?
* 娘の小春は喘息です。
? 娘の病気は何ですか。
+ 喘息でも行ける春の散歩を計画して。
~ プールの塩素は喘息持ちに悪い?
. 隣の人は巨大なかぼちゃを育てています。
. 夜は港で働いています。

* パクチーが苦手です。
? 私の苦手な香草は何ですか。
+ パクチー抜きのカレーペーストを作りたい。
~ パクチーサラダの作り方は?
- 庭のパーティーの料理を考えて。
* 八月のトライアスロンに向けて練習しています。
? 何に向けて練習していますか。
+ トライアスロンの道具一覧を作って。
~ トライアスロン選手は前夜に何を食べる?
. 同居人はモンゴルの切手を集めています。
. 地質学を二年学びました。

* 庭で亀を三匹飼っています。
? 庭で何を飼っていますか。
+ 亀は何度から冬眠しますか。
~ 海亀の餌の計画を立てて。
= 一番長生きする爬虫類は?
* 六月三日に足首の手術を受けます。
? 足首の手術はいつですか。
+ 足首に優しい靴を選んで。
~ 足首を鍛える運動は?
. 毎朝シャワーで歌います。
. いとこはフェリー会社を経営しています。
""",
    "Chinese": """
* 我对榛子严重过敏。
? 我对什么过敏?
+ 安排一份早午餐,其中一道用榛子做。
~ 榛仁酱配什么面包好吃?
= 推荐几款夹心巧克力。
* 车祸以后我坐轮椅。
? 车祸以后我坐什么?
+ 轮椅能通过的门要多宽?
~ 比较一下电动轮椅的价格。
. 我弟弟小汤修理旧收音机。
. 我住在一家面包店楼上。

* 我在业余乐团拉大提琴。
? 我演奏什么乐器?
+ 大提琴的弦多久换一次?
~ 列举三首著名的大提琴协奏曲。
= 哪些弦乐器声音低沉?
* 我女儿小雨有哮喘。
? 我女儿有什么病?
+ 计划一次适合哮喘孩子的春游。
~ 泳池的氯气对哮喘病人有害吗?
. 我们邻居种了巨大的南瓜。
. 我晚上在码头工作。

* 我受不了香菜。
? 我受不了哪种香草?
+ 不放香菜的咖喱酱怎么调?
~ 香菜籽旁边可以种什么?
- 安排花园聚会的饭菜。
* 我在为八月的铁人三项训练。
? 我在为什么训练?
+ 列一份铁人三项的装备清单。
~ 铁人赛前一晚吃什么?
. 我室友收集蒙古邮票。
. 我学过两年地质学。

* 我在院子里养了三只乌龟。
? 我在院子里养了什么?
+ 乌龟在几度开始冬眠?
~ 给一只陆龟制定喂食计划。
= 哪些爬行动物最长寿?
* 我六月三日做脚踝手术。
? 我哪天做脚踝手术?
+ 脚踝受伤后穿什么鞋?
~ 踝关节怎么锻炼?
. 我每天早上洗澡时唱歌。
. 我表哥经营一家渡轮公司。
""",
    "Arabic": """
* عندي حساسية شديدة من البندق.
? مم عندي حساسية؟
+ رتب فطورا فيه طبق من البندق.
~ كم يوما تبقى كعكة بالبندق طازجة؟
= ما أشهر حلوى النوغا؟
* أستخدم كرسيا متحركا منذ الحادث.
? ماذا أستخدم منذ الحادث؟
+ كم عرض باب يمر منه كرسيا متحركا كبيرا؟
~ هل تؤجر المتاحف الكراسي المتحركة؟
. أخي تامر يصلح أجهزة الراديو القديمة.
. أسكن فوق مخبز.

* أعزف على التشيلو في فرقة هواة.
? على أي آلة أعزف؟
+ متى تغير أوتار التشيلو؟
~ اذكر ثلاث مقطوعات للتشيلو.
= ما الآلات الوترية ذات الصوت العميق؟
* ابنتي سلمى مصابة بالربو.
? بماذا ابنتي مصابة؟
+ خطط لنزهة في الربيع تناسب طفلة مصابة بالربو.
~ هل يضر الكلور مرضى الربو؟
. جارنا يزرع قرعا ضخما.
. أعمل ليلا في الميناء.

* لا أطيق الكزبرة.
? أي عشب لا أطيق؟
+ كيف تحضر معجون كاري من غير الكزبرة؟
~ ماذا يزرع بجانب كزبرة خضراء؟
- جهز طعام حفلة في الحديقة.
* أتدرب من أجل الترياتلون في أغسطس.
? من أجل ماذا أتدرب؟
+ اكتب قائمة معدات الترياتلون.
~ ماذا يأكل لاعب ترياتلون قبل السباق؟
. زميلي في السكن يجمع طوابع منغوليا.
. درست الجيولوجيا سنتين.

* أربي ثلاث سلاحف في الحديقة.
? ماذا أربي في الحديقة؟
+ عند أي برد تدخل سلاحف البر في سبات؟
~ ضع خطة طعام مع السلاحف الصغيرة.
= أي الزواحف أطول عمرا؟
* عملية كاحلي يوم الثالث من يونيو.
? متى عملية كاحلي؟
+ أي حذاء يناسب كاحلي المتعب؟
~ كيف نقوي الكاحل في البيت؟
. أغني تحت الدش كل صباح.
. ابن عمي يدير شركة عبارات.
""",
    "Hindi": """
* मुझे हेज़लनट से एलर्जी है।
? मुझे किस चीज़ से एलर्जी है?
+ नाश्ते की सूची बनाओ जिसमें हेज़लनट हो।
~ हेज़लनटों वाला केक कितने दिन चलता है?
= नूगा वाली मशहूर चॉकलेट बताओ।
* हादसे के बाद मैं व्हीलचेयर पर हूँ।
? हादसे के बाद मैं किस पर हूँ?
+ दरवाज़ा कितना चौड़ा हो कि व्हीलचेयर निकले?
~ क्या संग्रहालय व्हीलचेयरें किराए पर देते हैं?
. मेरा भाई तरुण पुराने रेडियो सुधारता है।
. मैं एक बेकरी के ऊपर रहता हूँ।

* मैं शौकिया मंडली में सारंगी बजाता हूँ।
? मैं कौन सा वाद्य बजाता हूँ?
+ सारंगी के तार कब बदलने चाहिए?
~ तीन मशहूर सारंगियों के नाम बताओ।
= कौन से तार वाद्य गहरे सुर देते हैं?
* मेरी बेटी ओशी को दमा है।
? मेरी बेटी को क्या है?
+ वसंत की ऐसी सैर सोचो जो दमा में ठीक रहे।
~ क्या क्लोरीन दमे में नुकसान करती है?
. हमारा पड़ोसी बड़े कद्दू उगाता है।
. मैं रात में बंदरगाह पर काम करता हूँ।

* मुझे धनिया बिल्कुल पसंद नहीं।
? मुझे कौन सी पत्ती पसंद नहीं?
+ धनिया डाले बिना करी का पेस्ट कैसे बने?
~ धनिये के पास क्या उगता है?
- बगीचे की दावत का खाना सोचो।
* मैं अगस्त के ट्रायथलॉन की तैयारी कर रहा हूँ।
? मैं किसकी तैयारी कर रहा हूँ?
+ ट्रायथलॉन के सामान की सूची लिखो।
~ ट्रायथलॉनों से पहले खिलाड़ी क्या खाते हैं?
. मेरा साथी मंगोलिया के टिकट जमा करता है।
. मैंने दो साल भूविज्ञान पढ़ा।

* मैं आँगन में तीन कछुए पालता हूँ।
? मैं आँगन में क्या पालता हूँ?
+ कछुए किस ठंड में सोते हैं?
~ एक कछुआ दिन में क्या खाता है?
= सबसे लंबी उम्र के सरीसृप कौन हैं?
* तीन जून को मेरे टखने का ऑपरेशन है।
? मेरा ऑपरेशन कब है?
+ कौन सा जूता टखने को आराम देता है?
~ टखनों को मज़बूत कैसे करें?
. मैं हर सुबह नहाते हुए गाता हूँ।
. मेरा चचेरा भाई नौका कंपनी चलाता है।
""",
}
PEOPLE = {
    language: tuple(read_person(told) for told in people.strip().split("\n\n"))
    for language, people in _TOLD.items()
}
# What an assistant answers to what it is told.
ACKNOWLEDGED = {
    "English": "I see, thank you for telling me.",
    "German": "Verstehe, danke, dass du mir das sagst.",
    "French": "Je vois, merci de me l'avoir dit.",
    "Spanish": "Ya veo, gracias por contármelo.",
    "Portuguese": "Entendo, obrigado por me contar.",
    "Russian": "Понятно, спасибо, что рассказали.",
    "Japanese": "わかりました、教えてくれてありがとうございます。",
    "Chinese": "我明白了,谢谢你告诉我。",
    "Arabic": "فهمت، شكرا لإخباري بذلك.",
    "Hindi": "समझ गया, बताने के लिए धन्यवाद।",
}
# Lines that touch nothing of anybody here.
UNRELATED = {
    "English": (
        "Explain how a rainbow forms.",
        "What is the capital of Peru?",
        "Write a short poem about winter.",
        "How do I sort a list in Python?",
        "Translate 'good evening' into Finnish.",
        "Who painted the Mona Lisa?",
        "What is the difference between weather and climate?",
        "Suggest a title for a talk about bridges.",
        "How many litres are in a gallon?",
        "Summarise the plot of Hamlet in two sentences.",
        "Why is the sky blue?",
        "Give me three tips for a job interview.",
        "What does the word 'serendipity' mean?",
        "Plan a weekend in Lisbon for two people.",
        "How does a steam engine work?",
        "Which planets have rings?",
        "Write an email that declines a meeting.",
        "What is the best way to learn new vocabulary?",
        "Convert 30 degrees Celsius into Fahrenheit.",
        "Tell me about the history of chess.",
    ),
    "German": (
        "Erkläre, wie ein Regenbogen entsteht.",
        "Was ist die Hauptstadt von Peru?",
        "Schreib ein kurzes Gedicht über den Winter.",
        "Wie sortiere ich eine Liste in Python?",
        "Übersetze 'guten Abend' ins Finnische.",
        "Wer hat die Mona Lisa gemalt?",
        "Was ist der Unterschied zwischen Wetter und Klima?",
        "Schlag einen Titel für einen Vortrag über Brücken vor.",
        "Wie viele Liter hat eine Gallone?",
        "Fasse Hamlet in zwei Sätzen zusammen.",
        "Warum ist der Himmel blau?",
        "Gib mir drei Tipps für ein Vorstellungsgespräch.",
        "Was bedeutet das Wort 'Fernweh'?",
        "Plane ein Wochenende in Lissabon für zwei Personen.",
        "Wie funktioniert eine Dampfmaschine?",
        "Welche Planeten haben Ringe?",
        "Schreib eine Mail, die ein Treffen absagt.",
        "Wie lernt man am besten neue Vokabeln?",
        "Rechne 30 Grad Celsius in Fahrenheit um.",
        "Erzähl etwas über die Geschichte des Schachs.",
    ),
    "French": (
        "Explique comment se forme un arc-en-ciel.",
        "Quelle est la capitale du Pérou ?",
        "Écris un court poème sur l'hiver.",
        "Comment trier une liste en Python ?",
        "Traduis « bonsoir » en finnois.",
        "Qui a peint la Joconde ?",
        "Quelle est la différence entre météo et climat ?",
        "Propose un titre pour un exposé sur les ponts.",
        "Combien de litres dans un gallon ?",
        "Résume Hamlet en deux phrases.",
        "Pourquoi le ciel est-il bleu ?",
        "Donne-moi trois conseils pour un entretien d'embauche.",
        "Que veut dire le mot « dépaysement » ?",
        "Prévois un week-end à Lisbonne pour deux personnes.",
        "Comment marche une machine à vapeur ?",
        "Quelles planètes ont des anneaux ?",
        "Rédige un courriel qui décline une réunion.",
        "Quel est le meilleur moyen d'apprendre du vocabulaire ?",
        "Convertis 30 degrés Celsius en Fahrenheit.",
        "Raconte l'histoire des échecs.",
    ),
    "Spanish": (
        "Explica cómo se forma un arcoíris.",
        "¿Cuál es la capital de Perú?",
        "Escribe un poema corto sobre el invierno.",
        "¿Cómo ordeno una lista en Python?",
        "Traduce «buenas tardes» al finés.",
        "¿Quién pintó la Mona Lisa?",
        "¿Qué diferencia hay entre tiempo y clima?",
        "Propón un título para una charla sobre puentes.",
        "¿Cuántos litros tiene un galón?",
        "Resume Hamlet en dos frases.",
        "¿Por qué el cielo es azul?",
        "Dame tres consejos para una entrevista de trabajo.",
        "¿Qué significa la palabra «sobremesa»?",
        "Planea un fin de semana en Lisboa para dos personas.",
        "¿Cómo funciona una máquina de vapor?",
        "¿Qué planetas tienen anillos?",
        "Redacta un correo que rechace una reunión.",
        "¿Cuál es la mejor manera de aprender vocabulario?",
        "Convierte 30 grados Celsius a Fahrenheit.",
        "Cuéntame la historia del ajedrez.",
    ),
    "Portuguese": (
        "Explique como se forma um arco-íris.",
        "Qual é a capital do Peru?",
        "Escreva um poema curto sobre o inverno.",
        "Como ordeno uma lista em Python?",
        "Traduza «boa noite» para o finlandês.",
        "Quem pintou a Mona Lisa?",
        "Qual é a diferença entre tempo e clima?",
        "Sugira um título para uma palestra sobre pontes.",
        "Quantos litros tem um galão?",
        "Resuma Hamlet em duas frases.",
        "Por que o céu é azul?",
        "Dê-me três dicas para uma entrevista de emprego.",
        "O que significa a palavra «saudade»?",
        "Planeje um fim de semana em Lisboa para duas pessoas.",
        "Como funciona uma máquina a vapor?",
        "Que planetas têm anéis?",
        "Escreva um e-mail que recuse uma reunião.",
        "Qual é a melhor maneira de aprender vocabulário?",
        "Converta 30 graus Celsius em Fahrenheit.",
        "Conte a história do xadrez.",
    ),
    "Russian": (
        "Объясни, как образуется радуга.",
        "Какая столица у Перу?",
        "Напиши короткое стихотворение о зиме.",
        "Как отсортировать список в Python?",
        "Переведи «добрый вечер» на финский.",
        "Кто написал Мону Лизу?",
        "Чем погода отличается от климата?",
        "Предложи название для доклада о мостах.",
        "Сколько литров в галлоне?",
        "Перескажи Гамлета в двух предложениях.",
        "Почему небо голубое?",
        "Дай три совета для собеседования.",
        "Что значит слово «тоска»?",
        "Спланируй выходные в Лиссабоне на двоих.",
        "Как работает паровая машина?",
        "У каких планет есть кольца?",
        "Напиши письмо с отказом от встречи.",
        "Как лучше всего учить новые слова?",
        "Переведи 30 градусов Цельсия в Фаренгейты.",
        "Расскажи об истории шахмат.",
    ),
    "Japanese": (
        "虹ができる仕組みを説明して。",
        "ペルーの首都はどこですか。",
        "冬についての短い詩を書いて。",
        "Pythonでリストを並べ替えるには?",
        "「こんばんは」をフィンランド語に訳して。",
        "モナ・リザを描いたのは誰?",
        "天気と気候の違いは何ですか。",
        "橋についての講演の題名を提案して。",
        "一ガロンは何リットル?",
        "ハムレットを二文で要約して。",
        "空はなぜ青いのですか。",
        "面接のこつを三つ教えて。",
        "「木漏れ日」という言葉の意味は?",
        "二人でリスボンに行く週末を計画して。",
        "蒸気機関はどう動きますか。",
        "輪のある惑星はどれ?",
        "会議を断るメールを書いて。",
        "新しい単語を覚える一番の方法は?",
        "摂氏30度を華氏に直して。",
        "将棋の歴史を教えてください。",
    ),
    "Chinese": (
        "解释一下彩虹是怎么形成的。",
        "秘鲁的首都是哪里?",
        "写一首关于冬天的短诗。",
        "Python里怎么给列表排序?",
        "把“晚上好”翻译成芬兰语。",
        "蒙娜丽莎是谁画的?",
        "天气和气候有什么区别?",
        "给一个关于桥梁的讲座起个题目。",
        "一加仑是多少升?",
        "用两句话概括哈姆雷特。",
        "天空为什么是蓝色的?",
        "给我三条面试建议。",
        "“缘分”这个词是什么意思?",
        "给两个人安排一个里斯本的周末。",
        "蒸汽机是怎么工作的?",
        "哪些行星有光环?",
        "写一封拒绝会议的邮件。",
        "学新单词最好的办法是什么?",
        "把30摄氏度换算成华氏度。",
        "讲讲象棋的历史。",
    ),
    "Arabic": (
        "اشرح كيف يتكون قوس قزح.",
        "ما عاصمة بيرو؟",
        "اكتب قصيدة قصيرة عن الشتاء.",
        "كيف أرتب قائمة في بايثون؟",
        "ترجم «مساء الخير» إلى الفنلندية.",
        "من رسم الموناليزا؟",
        "ما الفرق بين الطقس والمناخ؟",
        "اقترح عنوانا لمحاضرة عن الجسور.",
        "كم لترا في الغالون؟",
        "لخص هاملت في جملتين.",
        "لماذا السماء زرقاء؟",
        "أعطني ثلاث نصائح لمقابلة عمل.",
        "ما معنى كلمة «غربة»؟",
        "خطط لعطلة في لشبونة لشخصين.",
        "كيف يعمل المحرك البخاري؟",
        "أي الكواكب لها حلقات؟",
        "اكتب رسالة تعتذر عن اجتماع.",
        "ما أفضل طريقة لتعلم كلمات جديدة؟",
        "حول 30 درجة مئوية إلى فهرنهايت.",
        "احك عن تاريخ الشطرنج.",
    ),
    "Hindi": (
        "बताओ कि इंद्रधनुष कैसे बनता है।",
        "पेरू की राजधानी क्या है?",
        "सर्दी पर एक छोटी कविता लिखो।",
        "पाइथन में सूची कैसे छाँटें?",
        "'शुभ संध्या' का फ़िनिश में अनुवाद करो।",
        "मोनालिसा किसने बनाई?",
        "मौसम और जलवायु में क्या फ़र्क है?",
        "पुलों पर व्याख्यान का शीर्षक सुझाओ।",
        "एक गैलन में कितने लीटर होते हैं?",
        "हैमलेट को दो वाक्यों में समझाओ।",
        "आसमान नीला क्यों है?",
        "इंटरव्यू के लिए तीन सुझाव दो।",
        "'विरह' शब्द का अर्थ क्या है?",
        "लिस्बन में दो लोगों का सप्ताहांत सोचो।",
        "भाप का इंजन कैसे चलता है?",
        "किन ग्रहों के छल्ले हैं?",
        "बैठक से मना करने वाला ईमेल लिखो।",
        "नए शब्द सीखने का सबसे अच्छा तरीका क्या है?",
        "30 डिग्री सेल्सियस को फ़ारेनहाइट में बदलो।",
        "शतरंज का इतिहास सुनाओ।",
    ),
}
