r"""Conversion of regular expressions to the syntax that Python, Rust and ECMA-262 share.

Patterns come from Python (`re`), from pydantic (Rust's `regex`) and from hand-written schemas
(ECMA-262, as JSON Schema 2020-12, core section 6.4, requires). Clients compile them with the flag
`u` (Ajv 8 in the TypeScript SDKs), where an unknown escape is an error, or with Python's `re`
(`jsonschema` in the Python SDK), which has no `\p{…}`. One error makes a client reject a whole list
of tools.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Final

_SYNTAX: Final = frozenset("^$\\.*+?()[]{}|/")
_CLASS_SYNTAX: Final = frozenset("\\]^-[")
# The classes of ECMA-262, without the flags `i` and `v`.
_CLASSES: Final = {
    "d": "0-9",
    "w": "A-Za-z0-9_",
    "s": "\\u0009-\\u000d \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff",
}
_CONTROLS: Final = {"n": "\\n", "r": "\\r", "t": "\\t", "f": "\\f", "v": "\\v", "a": "[\\u0007]"}
_CONTROL_CHARACTERS: Final = {
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "f": "\f",
    "v": "\v",
    "a": "\a",
    "b": "\b",
}
# Python and Rust match these too where case is ignored; a wider pattern rejects no value.
_OTHER_CASE: Final = {"k": "\u212a", "s": "\u017f", "i": "\u0130\u0131"}

_UNREPEATABLE: Final = frozenset(("", "(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "|", "^", "$"))
_GROUP_START = re.compile(r"\(\?(?:<?[=!]|:)")
_NAMED_GROUP = re.compile(r"\(\?P?<([^\W\d]\w*)>")
_NAMED_REFERENCE = re.compile(r"\(\?P=(\w+)\)|\\k<(\w+)>")
_FLAGS = re.compile(r"\(\?([aisu]+)\)")
_RANGE = re.compile(r"-[^\]]", re.DOTALL)
_SHORTHAND = re.compile(r"\\([dDwWsS])")
_COMMENT = re.compile(r"\(\?#[^)]*\)")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d*)(,?)(\d*)\})(\??)")
_HEX = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[xu]\{([0-9A-Fa-f]{1,6})\})"
)


class UnportablePattern(ValueError):
    """A pattern that cannot be written so that all clients read it; the text is the reason."""


def portable_pattern(pattern: str, *, exact: bool, is_ecma: bool) -> str:
    r"""Return a pattern that Python, Rust and ECMA-262 with the flag `u` read alike.

    With `exact` it matches everything that the original matches, in every engine; otherwise it is
    enough that all engines can compile it. With `is_ecma`, classes such as `\d` are those of
    ECMA-262, which are ASCII; otherwise they are those of Unicode, which differ between engines.

    Raises:
        UnportablePattern: there is no such pattern.
    """
    written = "".join(_Rewriter(pattern, exact=exact, is_ecma=is_ecma).run())
    try:
        re.compile(written)
    except (re.error, OverflowError, RecursionError) as exc:
        raise UnportablePattern(f"it is not a valid expression ({exc})") from exc
    return written


class _Rewriter:
    def __init__(self, pattern: str, *, exact: bool, is_ecma: bool) -> None:
        self.text = pattern
        self.at = 0
        self.exact = exact
        self.is_ecma = is_ecma
        self.ignores_case = self.is_dot_all = False
        self.is_negated = False
        self.groups: dict[str, int] = {}
        self.group_count = 0
        # For each open group, whether it is a lookaround.
        self.open: list[bool] = []

    def run(self) -> Iterator[str]:
        """Yield the parts of the new pattern."""
        while (flags := _FLAGS.match(self.text, self.at)) is not None:
            self.at = flags.end()
            self.ignores_case |= "i" in flags[1]
            self.is_dot_all |= "s" in flags[1]
            self.is_ecma |= "a" in flags[1]
        can_repeat = False
        while self.at < len(self.text):
            quantifier = _QUANTIFIER.match(self.text, self.at)
            if quantifier is not None and (can_repeat or quantifier[0][0] in "*+?"):
                low, comma, high, _ = quantifier.groups()
                if not can_repeat or (low == comma == high == ""):
                    raise UnportablePattern(f"{quantifier[0]!r} repeats nothing")
                self.at = quantifier.end()
                if self.text.startswith("+", self.at):
                    raise UnportablePattern(f"ECMA-262 has no possessive {quantifier[0]}+")
                if _QUANTIFIER.match(self.text, self.at):
                    raise UnportablePattern(f"ECMA-262 cannot repeat {quantifier[0]!r} again")
                # Python's {,3}.
                has_no_start = quantifier[0].startswith("{") and not low
                yield "{0" + quantifier[0][1:] if has_no_start else quantifier[0]
                can_repeat = False
                continue
            is_lookaround = self.text[self.at] == ")" and bool(self.open) and self.open.pop()
            if quantifier is not None and (quantifier[1] or quantifier[3]):
                raise UnportablePattern(f"{quantifier[0]!r} repeats nothing")
            part = self._part()
            can_repeat = not is_lookaround and part not in _UNREPEATABLE
            yield part

    def _part(self) -> str:
        character = self.text[self.at]
        if character == "\\":
            return self._escape()
        if character == "[":
            return self._class()
        if character == "(":
            return self._group()
        self.at += 1
        if character == ".":
            if self.is_dot_all:
                return "(?:[^\\n]|\\n)"
            # ECMA-262 excludes three more line terminators than Python and Rust.
            return "[^\\n]" if self.exact and not self.is_ecma else "."
        if character in "{}]":
            return f"\\{character}"
        if character in _SYNTAX:
            return character
        return self._literal(character)

    def _literal(self, character: str) -> str:
        if not self.ignores_case or character.lower() == character.upper():
            return character
        return f"[{self._both_cases(character)}]"

    def _both_cases(self, character: str) -> str:
        if not character.isascii():
            raise UnportablePattern(f"ECMA-262 has no (?i), and {character!r} has several cases")
        other = "" if self.is_negated else _OTHER_CASE.get(character.lower(), "")
        return f"{character.upper()}{character.lower()}{other}"

    def _group(self) -> str:
        if comment := _COMMENT.match(self.text, self.at):
            self.at = comment.end()
            return ""
        if group := _NAMED_GROUP.match(self.text, self.at):
            self.at = group.end()
            self.group_count += 1
            self.open.append(False)
            self.groups[group[1]] = self.group_count
            return "("
        if reference := _NAMED_REFERENCE.match(self.text, self.at):
            return self._reference(reference)
        if start := _GROUP_START.match(self.text, self.at):
            self.at = start.end()
            self.open.append(start[0] != "(?:")
            return start[0]
        if self.text.startswith("(?", self.at):
            raise UnportablePattern(f"ECMA-262 has no {self.text[self.at : self.at + 4]!r}")
        self.at += 1
        self.group_count += 1
        self.open.append(False)
        return "("

    def _reference(self, match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in self.groups:
            raise UnportablePattern(f"{match[0]!r} refers to a group that is not there")
        self.at = match.end()
        # In a group, so that a digit after the reference does not become a part of its number.
        return f"(?:\\{self.groups[name]})"

    def _escape(self) -> str:
        if code := _HEX.match(self.text, self.at):
            character = self._code(code)
            is_shown = character.isprintable() and character not in _SYNTAX
            return self._literal(character) if is_shown else f"[{_in_class(character)}]"
        if reference := _NAMED_REFERENCE.match(self.text, self.at):
            return self._reference(reference)
        letter = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if letter.lower() in _CLASSES:
            if not self.exact:
                return f"\\{letter}"
            self._require_ascii_classes(letter)
            return f"[{'^' if letter.isupper() else ''}{_CLASSES[letter.lower()]}]"
        if letter in "AZz" and letter:
            return "^" if letter == "A" else "$"
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter in "bB" and letter:
            if self.exact:
                raise UnportablePattern(f"engines disagree about \\{letter} beside other letters")
            return f"\\{letter}"
        if letter.isdecimal() and letter != "0" and not self.ignores_case:
            return f"\\{letter}"
        if not letter or letter.isalnum() or (letter in "<>" and not self.is_ecma):
            # In Rust, `\\<` is the edge of a word.
            raise UnportablePattern(f"not every engine has \\{letter}")
        return f"\\{letter}" if letter in _SYNTAX else self._literal(letter)

    def _code(self, match: re.Match[str]) -> str:
        """Return the character of an escape with its code."""
        self.at = match.end()
        number = int(next(filter(None, match.groups())), 16)
        if number > sys.maxunicode or 0xD800 <= number <= 0xDFFF:
            raise UnportablePattern(f"{match[0]!r} is not a character")
        return chr(number)

    def _require_ascii_classes(self, letter: str) -> None:
        if not self.is_ecma:
            raise UnportablePattern(f"\\{letter} stands for other characters in each engine")

    def _class(self) -> str:
        self.at += 1
        negation = "^" if self.text.startswith("^", self.at) else ""
        self.at += len(negation)
        self.is_negated = bool(negation)
        members: list[str] = []
        while True:
            if self.at >= len(self.text):
                raise UnportablePattern("a class of characters has no end")
            if self.text[self.at] == "]" and (members or self.is_ecma):
                self.at += 1
                break
            is_last = self.text.startswith("-]", self.at)
            if is_last or (self.text[self.at] == "-" and not members):
                # Every engine reads a hyphen at either end of a class literally.
                self.at += 1
                members.append("-")
            else:
                members.append(self._member())
        if not members:
            raise UnportablePattern("Python has no empty class of characters")
        self.is_negated = False
        return f"[{negation}{''.join(members)}]"

    def _member(self) -> str:
        if shorthand := _SHORTHAND.match(self.text, self.at):
            self.at = shorthand.end()
            if not self.exact:
                return shorthand[0]
            letter = shorthand[1]
            self._require_ascii_classes(letter)
            if letter.isupper():
                raise UnportablePattern(f"\\{letter} in a class differs between engines")
            return _CLASSES[letter]
        first = self._class_character()
        if not _RANGE.match(self.text, self.at):
            has_cases = self.ignores_case and first.lower() != first.upper()
            return self._both_cases(first) if has_cases else _in_class(first)
        self.at += 1
        if _SHORTHAND.match(self.text, self.at):
            raise UnportablePattern("a range of characters ends with a class")
        last = self._class_character()
        whole = f"{_in_class(first)}-{_in_class(last)}"
        if not self.ignores_case:
            return whole
        if not (first.isascii() and last.isascii()):
            raise UnportablePattern("ECMA-262 has no (?i), and a range has several cases")
        covered = {chr(code) for code in range(ord(first), ord(last) + 1)}
        letters = {character.lower() for character in covered if character.isalpha()}
        if not letters:
            return whole
        low, high = min(letters), max(letters)
        others = () if self.is_negated else sorted(letters & _OTHER_CASE.keys())
        more = "".join(_OTHER_CASE[letter] for letter in others)
        if len(letters) == ord(high) - ord(low) + 1:
            return f"{whole}{low}-{high}{low.upper()}-{high.upper()}{more}"
        return whole + "".join(f"{letter}{letter.upper()}" for letter in sorted(letters)) + more

    def _class_character(self) -> str:
        if code := _HEX.match(self.text, self.at):
            return self._code(code)
        character, following = self.text[self.at], self.text[self.at + 1 : self.at + 2]
        self.at += 1
        if character != "\\":
            is_operator = character == following and character in "-&~|"
            if not self.is_ecma and (character == "[" or is_operator):
                raise UnportablePattern("engines disagree about nested classes of characters")
            return character
        self.at += 1
        if following in _CONTROL_CHARACTERS:
            return _CONTROL_CHARACTERS[following]
        if not following or following.isalnum():
            raise UnportablePattern(f"not every engine has \\{following} in a class")
        return following


def _in_class(character: str) -> str:
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    if character in _CLASS_SYNTAX:
        return f"\\{character}"
    if character.isprintable() or ord(character) > 0xFFFF:
        return character
    return f"\\u{ord(character):04x}"
