"""Normalize text for searches.

SQLite ignores case for ASCII letters only, and users do not type the circumflex of "Nîmes". So
both sides of a search are folded here, and the folded name of an airport is stored in a column.
"""

from __future__ import annotations

import unicodedata

# Letters that Unicode decomposition does not turn into ASCII.
LETTERS = str.maketrans(
    {
        "\N{LATIN SMALL LETTER O WITH STROKE}": "o",
        "\N{LATIN SMALL LETTER L WITH STROKE}": "l",
        "\N{LATIN SMALL LETTER D WITH STROKE}": "d",
        "\N{LATIN SMALL LETTER AE}": "ae",
        "\N{LATIN SMALL LIGATURE OE}": "oe",
        "\N{LATIN SMALL LETTER THORN}": "th",
        "\N{LATIN SMALL LETTER ETH}": "d",
        "\N{LATIN SMALL LETTER DOTLESS I}": "i",
    }
)
APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}`"


def fold(text: str) -> str:
    """Return the words of the text in lower case, without accents and punctuation."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    bare = (letter for letter in decomposed if not unicodedata.combining(letter))
    # Users search for "O'Hare" as one word, and for "Fayetteville-Springdale" as two.
    joined = "".join(letter for letter in bare if letter not in APOSTROPHES).translate(LETTERS)
    return " ".join("".join(letter if letter.isalnum() else " " for letter in joined).split())
