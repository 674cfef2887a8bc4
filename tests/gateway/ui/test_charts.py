"""The geometry of charts: parts fill their bar, points stay inside the plot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.ui.charts import HEIGHT, MAX_BARS, WIDTH, bars, line, stack


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
