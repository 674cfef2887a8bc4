"""Token counts: of any script near the truth, corrected by what upstreams tell, short whatever the
text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import UpstreamRefused
from gateway.routing.failures import sizes_told
from memory.context import tokens
from memory.context.tokens import (
    LONG_TEXT_CHARACTERS,
    PromptReport,
    TokenCounter,
    estimate,
    fewest,
)

NOISE = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(100))
CODE = """
def grown(turn, plan, before, room):
    (
        'The same for a turn that goes on, under its epoch, from what was fitted '
        '`before`: only what is new is counted.'
    )
    known = turn.messages.before.count
    fresh = [i for i in range(known, len(turn.messages)) if i not in plan.splices]
    held = before.held + sum(message_size(room.counter, turn.messages[i], turn.chain.digest(i)) for i in fresh)
    return replace(before, plan=plan, tokens=room.counter.scaled(room.model, held + room.other), held=held)
"""  # noqa: E501
# Each with its true count: the greater one of cl100k_base and o200k_base.
TEXTS = {
    "base64": (base64.b64encode(NOISE).decode(), 3039),
    "base64 in JSON": (
        json.dumps({"type": "image", "data": base64.b64encode(NOISE).decode()}),
        3050,
    ),
    "hex": (NOISE.hex(), 3623),
    "emoji": ("🙂🎉👍🏽🔥❤️😂🤔👨‍👩‍👧‍👦🇩🇪🚀" * 30, 1470),
    "emoji in words": ("So happy today! 🎉🎉 Thank you all ❤️ see you soon 👋🏽 🚀 " * 20, 521),
    "Arabic": (
        "السلام عليكم ورحمة الله وبركاته، كيف حالك اليوم؟ أود أن أسألك عن موعد الاجتماع القادم "
        "وما إذا كان بإمكاننا تأجيله. " * 8,
        657,
    ),
    "Hebrew": (
        "שלום, מה שלומך היום? רציתי לשאול אותך לגבי הפגישה בשבוע הבא ואם אפשר לדחות אותה ליום אחר. "
        * 8,
        665,
    ),
    "Thai": (
        "สวัสดีครับ วันนี้อากาศดีมาก ผมอยากจะไปเที่ยวทะเลกับเพื่อนๆ ในวันหยุดสุดสัปดาห์นี้ คุณมีแผนจะทำอะไรบ้างครับ " * 8,
        808,
    ),
    "Hindi": (
        "नमस्ते, आप कैसे हैं? मुझे आशा है कि आप अच्छे होंगे। मैं आपसे अगले सप्ताह की बैठक के बारे में पूछना चाहता था। " * 8,
        896,
    ),
    "Bengali": (
        "নমস্কার, আপনি কেমন আছেন? আমি আশা করি আপনি ভালো আছেন। আগামী সপ্তাহের সভা সম্পর্কে "
        "জিজ্ঞাসা করতে চেয়েছিলাম। " * 8,
        1024,
    ),
    "Greek": (
        "Γεια σας, πώς είστε; Ήθελα να σας ρωτήσω για τη συνάντηση της επόμενης εβδομάδας. " * 8,
        570,
    ),
    "Russian": (
        "Здравствуйте, как ваши дела? Я хотел бы спросить вас о встрече на следующей неделе. " * 8,
        305,
    ),
    "Korean": (
        "안녕하세요, 오늘 기분이 어떠세요? 다음 주 회의에 대해 여쭤보고 싶었습니다. " * 8,
        298,
    ),
    "Japanese": (
        "こんにちは、お元気ですか。来週の会議についてお聞きしたいのですが、別の日に変更することは可能でしょうか。"
        * 8,
        392,
    ),
    "Chinese": (
        "你好，今天过得怎么样？我想问一下下周会议的安排，以及我们是否可以把它推迟到另一天，因为我有一个重要的出差。"
        * 8,
        448,
    ),
    "English": (
        "I would like to ask you about the meeting next week, and whether we could postpone it "
        "until another day. " * 8,
        177,
    ),
    "German": (
        "Ich wollte Sie zur Besprechung in der nächsten Woche befragen und ob wir die "
        "Versicherungsangelegenheiten verschieben könnten. " * 8,
        241,
    ),
    "code": (CODE * 4, 501),
    "JSON": (
        json.dumps(
            [
                {"id": i, "name": f"user{i}", "email": f"u{i}@example.com", "ok": i % 2 == 0}
                for i in range(80)
            ]
        ),
        2161,
    ),
    "JSON in lines": (
        json.dumps([{"id": i, "tags": ["a", "b"], "ok": True} for i in range(60)], indent=2),
        1922,
    ),
}

# More of the languages that the estimate is promised for, with the count of cl100k_base.
PROMISED = {
    "German, law": (
        (
            "Die Bundesversicherungsanstalt verweigerte die Kostenübernahme der "
            "Rehabilitationsmaßnahme, weil die Antragstellerin ihre "
            "Mitwirkungspflichten verletzt und die Unterlagen nicht fristgerecht "
            "eingereicht habe. Der Widerspruchsausschuss bestätigte die Entscheidung; "
            "daraufhin erhob sie Klage beim Sozialgericht. "
        )
        * 5,
        426,
    ),
    "German, chat": (
        (
            "Na, wie geht's dir heute? Ich war gestern beim Zahnarzt und hab danach "
            "noch schnell eingekauft: Brot, Käse, Äpfel, Müsli. Könntest du mir bitte "
            "ein Rezept für Grießklößchensuppe schicken? "
        )
        * 5,
        331,
    ),
    "German, technology": (
        (
            "Die Datenbankverbindung wird über den Verbindungspool hergestellt; "
            "schlägt sie fehl, versucht der Hintergrundprozess nach einer Wartezeit "
            "von 30 Sekunden erneut, die Warteschlangeneinträge abzuarbeiten. "
        )
        * 5,
        296,
    ),
    "Chinese, traditional": (
        "請幫我查詢明天從台北到高雄的高鐵時刻表，並且預訂兩張對號座車票，謝謝您的協助與配合。" * 8,
        552,
    ),
    "Chinese, news": (
        "国家统计局今天公布的数据显示，今年第三季度国内生产总值同比增长百分之四点九，消费市场持续恢复，就业形势总体稳定。"
        * 8,
        480,
    ),
    "Chinese, classical": (
        "學而時習之，不亦說乎？有朋自遠方來，不亦樂乎？人不知而不慍，不亦君子乎？" * 8,
        424,
    ),
    "Chinese and English": (
        "我用Python写了一个FastAPI服务，"
        "部署在Docker里，但是请求经常超时，日志显示connection reset by peer。" * 8,
        272,
    ),
    "English, capitals": (
        (
            "PLEASE NOTE THAT THE WARRANTY SHALL NOT APPLY TO CONSEQUENTIAL OR "
            "INCIDENTAL DAMAGES ARISING OUT OF NEGLIGENCE. "
        )
        * 8,
        145,
    ),
    "camel case": (
        (
            "const userAccountManager = new "
            "UserAccountManagerFactoryBean(applicatio"
            "nContext.getEnvironment(), "
            "dataSourceTransactionManager);\n"
        )
        * 8,
        160,
    ),
    "JavaScript, packed": (
        (
            "function a(e,t){var n=e.length,r=t.q||{};for(var "
            "i=0;i<n;i++){if(e[i]!==void "
            '0&&r[i]===null){r[i]=e[i]^t.x;}else{r[i]|=0x3f}}return r}!function(){"use '
            'strict";var e={p:1,q:[2,3]};a(e,{x:7})}();'
        )
        * 6,
        546,
    ),
    "C++": (
        (
            "template <typename T>\nstd::unique_ptr<T> make(std::initializer_list<int> "
            "l) {\n\treturn std::make_unique<T>(l.begin(), l.end());\n}\n\n#define "
            'MAX_BUF 0x1000\nstatic const char *kErr[] = {"EAGAIN", "EPIPE"};\n'
        )
        * 5,
        300,
    ),
    "YAML": (
        (
            "services:\n  web:\n    image: nginx:1.25.3-alpine\n    ports:\n      - "
            '"8080:80"\n    environment:\n      - TZ=Europe/Berlin\n      - '
            "LOG_LEVEL=debug\n"
        )
        * 6,
        288,
    ),
    "SQL": (
        (
            "SELECT u.id, u.email, COUNT(o.id) AS n FROM users u LEFT JOIN orders o ON "
            "o.user_id = u.id WHERE u.created_at >= '2024-01-01' GROUP BY 1, 2 HAVING "
            "COUNT(o.id) > 3;\n"
        )
        * 6,
        342,
    ),
    "TypeScript": (
        (
            "export async function fetchUser(id: string): Promise<User | undefined> "
            "{\n  const res = await fetch(`/api/users/${id}`, { headers: { 'x-token': "
            "token ?? '' } });\n  if (!res.ok) throw new HttpError(res.status);\n  "
            "return (await res.json()) as User;\n}\n"
        )
        * 5,
        320,
    ),
    "Rust": (
        (
            "impl<'a, T: Iterator<Item = &'a u8>> Parser<T> {\n    pub fn "
            "next_token(&mut self) -> Option<Result<Token<'a>, Error>> {\n        "
            "match self.iter.next()? {\n            b'0'..=b'9' => "
            "Some(Ok(Token::Num)),\n            _ => None,\n        }\n    }\n}\n"
        )
        * 5,
        365,
    ),
    "HTML": (
        (
            '<div class="row g-3 mb-2" id="x1"><a href="/p?id=3" '
            'data-bs-toggle="tab">Go</a><br/></div>\n'
        )
        * 8,
        304,
    ),
    "JSON of Chinese": (
        json.dumps(
            [{"姓名": "张伟", "城市": "上海", "备注": "老客户，优先处理"} for i in range(20)],
            ensure_ascii=False,
        ),
        562,
    ),
    "JSON, escaped": (json.dumps([{"t": "老客户 süß"} for i in range(20)]), 442),
    "JSON, nested": (
        json.dumps({"a": {"b": [{"c": None, "d": [[], [1, 2], {}]}] * 20}}, indent=2),
        676,
    ),
    "JSON, packed": (
        json.dumps(
            [{"k": i, "v": [True, False, None], "s": "x"} for i in range(80)], separators=(",", ":")
        ),
        1123,
    ),
    "JSON, deep": (
        json.dumps(
            [{"user": {"first_name": "Ada", "tags": ["a", "b"], "n": i}} for i in range(30)],
            indent=4,
        ),
        1232,
    ),
    "JSON of numbers": (json.dumps([[i / 7 - 50, i * 3.25] for i in range(90)]), 1209),
}
EVERY = TEXTS | PROMISED


@pytest.mark.parametrize("kind", EVERY)
def test_an_estimate_errs_upwards(kind):
    text, true = EVERY[kind]
    assert 0.97 <= estimate(text) / true <= 2


@pytest.mark.parametrize("kind", EVERY)
def test_no_text_has_fewer_tokens_than_its_fewest(kind):
    text, true = EVERY[kind]
    assert fewest(text) <= true
    assert fewest(text * 40) <= 40 * true


@pytest.mark.parametrize("kind", TEXTS)
def test_twenty_reports_correct_a_count_within_five_percent(kind):
    text, true = TEXTS[kind]
    counter = TokenCounter()
    # Parts of it, as prompts grow.
    for share in range(20):
        part = text[: len(text) * (share + 5) // 25]
        counter.correct("m", counter.text(part), int(true * len(part) / len(text)))
    assert counter.scale("m", counter.text(text)) == pytest.approx(true, rel=0.05)


REFUSALS = {
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens "
    "(8000 in the messages, 1000 in the completion).": (
        8000,
        8192,
    ),
    "This model's maximum context length is 128,000 tokens. However, your messages resulted in "
    "131,072 tokens.": (
        131072,
        128000,
    ),
    "prompt is too long: 210000 tokens > 200000 maximum": (210000, 200000),
    "The input token count (40000) exceeds the maximum number of tokens allowed (32768).": (
        40000,
        32768,
    ),
    '{"error":{"n_prompt_tokens":5000,"n_ctx":4096,"type":"exceed_context_size_error"}}': (
        5000,
        4096,
    ),
    "the request exceeds the available context size": None,
    "maximum context length exceeded": None,
}


@pytest.mark.parametrize(("text", "told"), REFUSALS.items())
def test_a_refusal_tells_the_sizes_it_names(text, told):
    assert sizes_told(UpstreamRefused(400, text.encode())) == told


def test_a_report_of_something_else_is_not_believed():
    """Some servers report what was not in their cache."""
    counter = TokenCounter()
    for _ in range(30):
        counter.correct("m", 10_000, 100)
    assert counter.scale("m", 1000) == 1000


def test_a_refused_prompt_is_counted_as_what_it_was():
    counter = TokenCounter()
    counter.learn_from_refusal("m", 1000, 2000)
    assert counter.scale("m", 1000) == 2000
    # It is known to be more.
    counter.learn_from_refusal("m", 1000, 1500)
    assert counter.scale("m", 1000) == 2000


def test_no_more_factors_are_kept_than_there_is_room_for():
    counter = TokenCounter()
    for i in range(5000):
        counter.correct("used", 1000, 2000)
        counter.correct(f"invented {i}", 1000, 2000)
    assert 0 < len(counter.factors) < 5000
    assert counter.scale("used", 1000) > 1900


@pytest.fixture(scope="module")
def panics():
    """A real encoding without a vocabulary: it panics on long runs as those with one do."""
    pattern = (
        r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++"""
        r"""|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
    )
    ranks = {bytes([i]): i for i in range(256)}
    return tiktoken.Encoding(
        "bytes", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
    ).encode_ordinary


@pytest.mark.parametrize(
    "text", [" " * 1_100_000 + "a", "\t" * 1_100_000 + "a", " \n" * 600_000 + "a"]
)
def test_a_text_on_which_the_tokenizer_panics_is_counted(panics, monkeypatch, text):
    counter = TokenCounter(panics)
    assert counter.message({"role": "user", "content": text}) > 0
    # Asked in one piece, too.
    monkeypatch.setattr(tokens, "LONG_TEXT_CHARACTERS", 1 << 30)
    assert TokenCounter(panics).text(text) > 0


def test_what_is_no_panic_is_not_swallowed():
    def stopped(text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TokenCounter(stopped).text("hello")


def test_a_long_text_is_looked_at_in_part():
    looked = []

    def encode(text):
        looked.append(len(text))
        return range(len(text) // 4)

    found = TokenCounter(encode).text("word " * 3_000_000)
    assert sum(looked) <= LONG_TEXT_CHARACTERS
    assert 15_000_000 / 4 <= found <= 1.3 * 15_000_000 / 4


def test_a_count_takes_no_longer_for_sixty_times_the_text():
    """Samples, not all of it: a bound that is wide against a busy machine."""
    counter, took = TokenCounter(), []
    for n in (1, 60):
        text = "some words, and more of them. " * (n * 10_000)
        begun = time.process_time()
        counter._count(text)
        took.append(time.process_time() - begun)
    assert took[1] < 20 * took[0] + 0.05


@given(st.text(max_size=200), st.integers(2, 40))
def test_no_count_of_one_text_is_taken_for_that_of_another_with_the_same_words(text, n):
    counter = TokenCounter()
    plain, wide = (
        {"role": "user", "content": "a b"},
        {"role": "user", "content": "a" + "\n" * 50 * n + "b"},
    )
    # Of the normalised message: the same for both.
    digest = b"d" * 16
    small = counter.message(plain, digest)
    assert counter.message(wide, digest) == TokenCounter().message(wide) > small
    thinks = {"role": "assistant", "content": "a b", "reasoning_content": f"{text} and on " * n}
    assert counter.message(thinks, digest) == TokenCounter().message(thinks)


def test_a_message_of_many_parts_is_counted_like_one_text():
    parts = [{"type": "text", "text": f"b{i}"} for i in range(100_000)]
    counter = TokenCounter()
    began = time.process_time()
    many = counter.message({"role": "system", "content": [*parts, {"type": "odd", "a": 1}]})
    # One by one it took several.
    assert time.process_time() - began < 1
    one = counter.message({"role": "system", "content": "\n".join(p["text"] for p in parts)})
    assert one <= many <= one + 10


def test_parts_count_as_what_they_are():
    counter = TokenCounter()

    def count(*parts):
        return counter.message({"role": "user", "content": list(parts)})

    none = count()
    assert count("odd") == none + 1
    assert count({"type": "text", "text": "some words"}) > none + 1
    low, high = (
        {"type": "image_url", "image_url": {"url": "x", "detail": d}} for d in ("low", "high")
    )
    assert none < count(low) < count(high)
    assert count({"type": "input_audio", "data": "x" * 100_000}) == none + 2000


def test_tools_count_as_their_json():
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert TokenCounter().tools(None) == TokenCounter().tools([]) == 0
    assert TokenCounter().tools(tools) == TokenCounter().text(
        json.dumps(tools, separators=(",", ":"))
    )


def test_a_report_of_fewer_tokens_than_a_prompt_has_is_of_a_part_of_it():
    assert PromptReport(5).is_whole
    assert not PromptReport(5, 6).is_whole


@pytest.mark.parametrize(
    "text", ["word after word, and so on. ", "Mañana será otro día. ", "x=1;\n"]
)
@pytest.mark.parametrize("times", [1, 40, 4000])
def test_samples_of_an_even_text_count_a_little_more_than_all_of_it(text, times):
    counter = TokenCounter()
    whole = estimate(text * times)
    sampled = counter.sample((text * times).encode())
    assert whole <= sampled <= 1.6 * whole + 2


def test_nothing_has_no_samples():
    assert TokenCounter().sample(b"") == 0


def test_samples_are_few_however_long_the_text_is(monkeypatch):
    seen = []
    monkeypatch.setattr(tokens, "estimate", lambda text: seen.append(len(text)) or 1)
    TokenCounter().sample("😀".encode() * 100_000)
    assert sum(seen) <= 17 * 256
