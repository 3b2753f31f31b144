"""How a rate is written, and what it means."""

import pytest
from hypothesis import given, strategies as st

from mcp_django.conf import MAX_RATE_SECONDS, Rate, parse_rate, parse_rates


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/h", Rate(100, 3600)),
        (" client : 10 / 30s ", Rate(10, 30, "client")),
        ("all:5/2d", Rate(5, 2 * 24 * 3600, "all")),
        ("0/m", Rate(0, 60)),
        ("1/30d", Rate(1, MAX_RATE_SECONDS)),
    ],
)
def test_a_rate_is_read(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "often", "-1/h", "1/w", "1/0s", "1/31d", "ip: 1/h", "1/h/m", "\u0661/h"]
)
def test_what_is_no_rate_is_refused_with_the_way_out(text):
    with pytest.raises(ValueError, match="write '100/h'") as caught:
        parse_rate(text)
    assert repr(text) in str(caught.value)


def test_several_rates_are_a_list_or_one_text():
    both = (Rate(1, 1), Rate(2, 60, "all"))
    assert parse_rates("1/s, all: 2/m") == parse_rates(["1/s", "all: 2/m"]) == both
    assert parse_rates("") == parse_rates([]) == ()


@given(
    st.builds(
        Rate,
        st.integers(0, 999_999_999),
        st.integers(1, MAX_RATE_SECONDS),
        st.sampled_from(["user", "client", "all"]),
    )
)
def test_what_is_written_is_read_again(rate):
    assert parse_rate(str(rate)) == rate
