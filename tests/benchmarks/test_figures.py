"""The arithmetic of the figures."""

from __future__ import annotations

import pytest

from benchmarks.rounds import Sample, Spread, format_number, percentile, ratios, spread


def sample(**changes: object) -> Sample:
    measured = {
        "requests": 200,
        "seconds": 2.0,
        "cpu_seconds": 0.5,
        "latencies": [n / 1000 for n in range(1, 201)],
    }
    return Sample(**{**measured, **changes})


def test_a_sample_says_what_one_request_costs():
    assert sample().cpu == pytest.approx(2500)
    assert sample().rate == pytest.approx(100)
    assert sample().p50 == pytest.approx(100)
    assert sample().p99 == pytest.approx(198)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([7], 1, 7), ([7], 100, 7), ([1, 2, 3, 4], 50, 2), ([1, 2, 3, 4], 51, 3), ([1, 2], 99, 2)],
)
def test_a_percentile_is_a_value_that_was_measured(values, percent, expected):
    assert percentile(values, percent) == expected


@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1.0], 0), ([1.0], 101)])
def test_there_is_no_percentile_of_nothing(values, percent):
    with pytest.raises(ValueError, match="No percentile"):
        percentile(values, percent)


def test_a_spread_is_the_median_between_the_extremes():
    assert spread([3, 1, 2]) == Spread(median=2, least=1, most=3)
    assert spread([4, 1]).median == 2.5
    assert str(spread([3000, 0.125, 2])) == "2.00 (0.125 to 3000)"


def test_ratios_are_taken_round_by_round():
    # If the machine becomes ten times slower, it does so for both, and the ratio stays the same.
    assert ratios([2, 20, 200], [1, 10, 100]) == Spread(median=2, least=2, most=2)


def test_ratios_of_different_rounds_are_refused():
    with pytest.raises(ValueError, match="zip"):
        ratios([1, 2], [1])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.00123, "0.00123"),
        (0.5, "0.500"),
        (9.999, "10.00"),
        (12.345, "12.3"),
        (123.45, "123"),
        (98765.4, "98765"),
    ],
)
def test_a_number_has_three_digits_that_matter(value, text):
    assert format_number(value) == text
