"""Words that speak of one matter of a person's life, by matter and language.

Who says "I moved to Lyon" speaks of where they live, though no word is the same. A word with `*` is
the beginning of others. Chinese and Japanese are looked for in the text.
"""

from __future__ import annotations

MATTERS = {
    "home": {
        "en": "live lives living lived move moves moved moving relocate* reside* address flat house"
        " apartment home",
        "de": "wohn* leb* gewohnt gelebt zieh* zog zogen gezogen umgezogen umzieh* umzug adresse"
        " wohnung zuhause",
        "fr": "habit* vis vit vivre vivons vivent demeure* déménag* emménag* install* réside*"
        " adresse appartement logement",
        "es": "vivo vive viven vivir vivía viviendo mud* traslad* resid* domicilio dirección piso"
        " apartamento",
        "pt": "moro mora moram morar morava morando vivo vive viver mud* reside* endereço"
        " apartamento",
        "ru": "живу живет живут жил жила жить живём живем переезж* переех* перебра* адрес квартир*"
        " прожива*",
        "ar": "أسكن يسكن تسكن نسكن سكنت ساكن أعيش يعيش تعيش عشت أقيم يقيم تقيم انتقل* سأنتقل"
        " عنواني عنوان شقة",
        "hi": "रहता रहती रहते रहना रहूँ बसा बसी बस* शिफ़्ट शिफ्ट चला चली चले घर पता मकान",
    },
    "work": {
        "en": "work works working worked job jobs employer employed hired company career joined"
        " retired freelance*",
        "de": "arbeit* job stelle arbeitgeber* firma beruf angestellt eingestellt rente",
        "fr": "travail* bosse job emploi employeur embauch* poste métier entreprise retraite",
        "es": "trabaj* empleo empleador* empresa puesto contrat* jubil*",
        "pt": "trabalh* emprego empregador* empresa cargo contrat* aposent*",
        "ru": "работа* устро* должност* профессия уволи* пенси*",
        "ar": "أعمل يعمل تعمل عملت عمل عملي وظيفة وظيفتي شركة توظفت تقاعد*",
        "hi": "काम नौकरी कंपनी पेशा काम* सेवानिवृत्त",
    },
    "partner": {
        "en": "married marry wife husband divorced divorce* engaged single girlfriend boyfriend"
        " partner separated widow* fiancé fiancée",
        "de": "verheiratet geheiratet heirat* frau mann ehe* geschieden verlobt ledig single"
        " freundin freund getrennt verwitwet partner*",
        "fr": "marié mariée marier épou* femme mari divorc* fiancé* célibataire copain copine"
        " séparé* veuf veuve",
        "es": "casado casada casé casamos casarme esposa esposo marido mujer divorci* prometid*"
        " solter* novi* separad* viud*",
        "pt": "casado casada casei casamos casar esposa esposo marido mulher divorci* noiv*"
        " solteir* namorad* separad* viúv*",
        "ru": "женат женился замужем замуж жена муж разве* помолвл* холост* девушк* парень вдов*",
        "ar": "متزوج متزوجة تزوجت زوجتي زوجي مطلق مطلقة طلقت مخطوب* أعزب عزباء خطيب* أرمل*",
        "hi": "शादी* विवाह* पत्नी पति तलाक* सगाई अविवाहित मंगेतर प्रेमिका प्रेमी",
    },
    "diet": {
        "en": "vegan vegetarian meat fish eat eats eating diet pescatarian",
        "de": "vegan* vegetari* fleisch fisch ess* isst ernähr*",
        "fr": "végan* végétalien* végétarien* viande poisson mange manger régime",
        "es": "vegan* vegetarian* carne pescado como come comer dieta",
        "pt": "vegan* vegetarian* carne peixe como come comer dieta",
        "ru": "веган* вегетариан* мяс* рыб* ем ест едим диет*",
        "ar": "نباتي نباتية لحم اللحم سمك السمك آكل أكل حمية",
        "hi": "शाकाहारी मांसाहारी वीगन मांस मछली खाता खाती खाना आहार",
    },
}
MATTERS_CJK = {
    "home": "住 搬到 搬家 搬去 搬进 迁居 迁到 定居 住所 地址 引っ越 引越 移り住 暮らし 転居 住所",
    "work": "工作 上班 职业 就职 跳槽 公司 辞职 退休 働 仕事 勤め 勤務 転職 就職 会社 退職",
    "partner": "结婚 离婚 订婚 妻子 老婆 丈夫 老公 单身 女朋友 男朋友 結婚 離婚 婚約 妻"
    " 夫 独身 彼女 彼氏",
    "diet": "吃素 素食 吃肉 吃鱼 纯素 饮食 菜食 ベジタリアン ヴィーガン 肉を食 魚を食 食事",
}
