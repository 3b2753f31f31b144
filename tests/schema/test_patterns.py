"""Patterns that Python, Rust and ECMA-262 all read, and what becomes of the others."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from mcp_django.schema.patterns import UnportablePattern, portable_pattern

BACKSLASH = "\\"


def in_arguments(pattern: str) -> str:
    return portable_pattern(pattern, exact=False, is_ecma=False)


def in_results(pattern: str) -> str:
    return portable_pattern(pattern, exact=True, is_ecma=False)


def by_hand(pattern: str) -> str:
    return portable_pattern(pattern, exact=True, is_ecma=True)


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        (r"^[a-z]{2,3}?$", r"^[a-z]{2,3}?$"),
        (r"a\-b", "a-b"),
        (r"a\_\'\"\ \@\:b", "a_'\" @:b"),
        (r"^[\w\-.]+$", r"^[\w\-.]+$"),
        (r"\Aa\Z", "^a$"),
        (r"a\z", "a$"),
        (r"(?P<year>\d{4})-(?P=year)", r"(\d{4})-(?:\1)"),
        (r"(?<a>x)\k<a>", r"(x)(?:\1)"),
        (r"a{,3}", "a{0,3}"),
        (r"{a}]", r"\{a\}\]"),
        (r"x{", r"x\{"),
        (r"[]a]", r"[\]a]"),
        (r"[^]]", r"[^\]]"),
        (r"^[-a-z]+[a-]$", r"^[-a-z]+[a-]$"),
        (r"(?#digits)\d", r"\d"),
        (r"\x41\u00e9\U0001F600", "Aé😀"),
        (r"\x{1F600}", "😀"),
        (r"\x5b", r"[\[]"),
        (r"[\x00-\x1f]", r"[\u0000-\u001f]"),
        (r"[\b\n]", r"[\u0008\n]"),
        (r"\a", r"[\u0007]"),
        (r"(?s).", r"(?:[^\n]|\n)"),
        (r"(?i)Ab[c-e]", "[Aa][Bb][c-ec-eC-E]"),
        (r"(?i)[x9]", "[Xx9]"),
        (r"(?i)k", "[Kk\u212a]"),
        (r"(?i)[0-9]", "[0-9]"),
        (r"(?i)[^i]", "[^Ii]"),
        (r"(?i)[Y-b]", "[Y-baAbByYzZ]"),
        (r"(?=a)b(?!c)(?<=b)(?<!d)", r"(?=a)b(?!c)(?<=b)(?<!d)"),
        (r"\/\.\\", r"\/\.\\"),
        (r"\bword\b", r"\bword\b"),
        ("", ""),
    ],
)
def test_a_pattern_of_an_argument_is_written_for_every_engine(pattern, written):
    assert in_arguments(pattern) == written
    assert in_arguments(written) == written


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"^\p{L}+$", r"not every engine has \p"),
        (r"a++", "no possessive ++"),
        (r"(?>a)", "has no '(?>a'"),
        (r"(?x) a b", "has no '(?x)'"),
        (r"(?m)^a", "has no '(?m)'"),
        (r"(?i:a)b", "has no '(?i:'"),
        (r"(a)(?(1)b|c)", "has no '(?(1'"),
        (r"[[:alpha:]]", "nested classes"),
        (r"[a-z&&b]", "nested classes"),
        (r"[a", "no end"),
        (r"a" + BACKSLASH, "not every engine has"),
        (r"[\q]", r"not every engine has \q in a class"),
        (r"(?i)é", "several cases"),
        (r"(?i)[à-é]", "several cases"),
        (r"[a-\d]", "ends with a class"),
        (r"*a", "repeats nothing"),
        (r"(?=a)*", "repeats nothing"),
        (r"(?P=a)", "a group that is not there"),
        (r"^\<foo\>$", r"not every engine has \<"),
        (r"^{2}", "repeats nothing"),
        (r"a{2}{3}", "cannot repeat '{2}' again"),
        (r"\x{110000}", "is not a character"),
        (r"[\x{D800}]", "is not a character"),
        (r"(a", "not a valid expression"),
        (r"[z-a]", "not a valid expression"),
    ],
)
def test_a_pattern_that_not_every_engine_reads_is_refused_with_the_reason(pattern, reason):
    with pytest.raises(UnportablePattern, match=re.escape(reason)):
        in_arguments(pattern)


@pytest.mark.parametrize("pattern", [r"\d", r"\w+", r"[^\s]", r"\bé", r"\D"])
def test_classes_of_unicode_are_not_for_results(pattern):
    with pytest.raises(UnportablePattern, match=r"engine"):
        in_results(pattern)


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        (r"^\d+$", "^[0-9]+$"),
        (r"\W", "[^A-Za-z0-9_]"),
        (r"[\w-]", "[A-Za-z0-9_-]"),
        (r"(?a)\d", "[0-9]"),
    ],
)
def test_classes_by_hand_are_those_of_ecma_262(pattern, written):
    assert by_hand(pattern) == written


def test_a_negated_class_in_a_class_by_hand_is_refused():
    with pytest.raises(UnportablePattern, match="in a class differs"):
        by_hand(r"[\D.]")


def test_a_class_by_hand_that_contains_nothing_is_refused():
    with pytest.raises(UnportablePattern, match="no empty class"):
        by_hand("a[]")


def test_a_dot_of_a_result_is_what_the_server_takes_it_for():
    assert in_results(r"a.b") == r"a[^\n]b"
    assert by_hand(r"a.b") == r"a.b"


PIECES = st.sampled_from(
    [
        *("a", "B", "-", "_", "é", "1", " ", "\n", ".", "^", "$", "|", "(?:ab)", "(x)", "[a-f]"),
        *("[^b]", "[B-D]", r"\.", r"\-", r"\_", "a*", "b+?", "x{1,2}", "y?", r"\n", "(?P<n>z)"),
    ]
)


@given(
    pattern=st.lists(PIECES, max_size=8, unique=True).map("".join),
    flags=st.sampled_from(["", "(?i)", "(?s)", "(?is)"]),
    text=st.text(alphabet="aAbBcdxyz-_1. \n", max_size=12),
)
def test_what_matched_still_matches(pattern, flags, text):
    try:
        written = in_results(flags + pattern)
    except UnportablePattern:
        return
    if re.search(flags + pattern, text):
        assert re.search(written, text), (flags + pattern, written)
    assert in_results(written) == written
