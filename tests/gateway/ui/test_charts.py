"""The geometry of charts: parts fill their bar, points stay inside the plot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.ui.charts import HEIGHT, MAX_BARS, WIDTH, bars, line, stack
from gateway.ui.router import template_config


@given(st.lists(st.integers(0, 10**9), max_size=8), st.integers(0, 10**9))
def test_the_parts_of_a_stack_stand_side_by_side_within_it(values, whole):
    found = stack({str(i): (f"part {i}", v) for i, v in enumerate(values)}, whole)
    assert [p.value for p in found] == [v for v in values if v]
    ends = 0.0
    for part in found:
        assert abs(part.x - ends) < 0.01
        ends = part.x + part.width
    assert ends < 100.01


@given(st.lists(st.floats(0, 1e12), max_size=50))
def test_points_and_columns_stay_inside_their_plot(values):
    for point in line(values).points.split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    for bar in bars({str(i): v for i, v in enumerate(values)}):
        assert 0 <= bar.x <= bar.x + bar.width <= WIDTH + 0.1
        assert bar.y >= -0.1
        assert bar.y + bar.height <= HEIGHT + 0.2


def test_only_the_last_days_are_drawn():
    found = bars({str(i): 1.0 for i in range(200)})
    assert len(found) == MAX_BARS
    assert found[-1].title == "199: 1"
    assert (found[-1].name, found[-1].value) == ("199", 1.0)


def draw(text, **values):
    """What a template shows that takes the macros of the dashboard."""
    environment = template_config().engine_instance.engine
    return environment.from_string("{% import 'parts/macros.html' as m %}" + text).render(values)


def test_a_chart_says_what_its_axes_are():
    drawn = draw("{{ m.plot('Tokens', 'a turn', points, 1200, 'tokens') }}", points="0,0 1,1")
    axes = drawn.partition('<div class="y"')[2]
    for label in ("1,200 tokens", "<span>0</span>", "older turns", "newest turn"):
        assert label in axes
    days = bars({"2026-03-01": 3.0, "2026-03-02": 7.0})
    axes = draw("{{ m.columns('Cost', 'a day', bars) }}", bars=days).partition('<div class="y"')[2]
    for label in ("<span>7", "<span>0</span>", "2026-03-01", "2026-03-02"):
        assert label in axes
