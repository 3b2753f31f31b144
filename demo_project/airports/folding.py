"""Text as a search compares it.

SQLite ignores case for ASCII letters only, and nobody types the circumflex of "Nîmes": so both
sides of a search are folded here, and the folded name of an airport is a column.
"""

from __future__ import annotations

import unicodedata

# Letters that no decomposition turns into ASCII.
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
    """The words of the text in lower case, without accents and punctuation."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    bare = (letter for letter in decomposed if not unicodedata.combining(letter))
    # "O'Hare" is one word to whoever looks for it, "Fayetteville-Springdale" is two.
    joined = "".join(letter for letter in bare if letter not in APOSTROPHES).translate(LETTERS)
    return " ".join("".join(one if one.isalnum() else " " for one in joined).split())
