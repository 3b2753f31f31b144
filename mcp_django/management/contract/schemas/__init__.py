"""Whether everything that one JSON Schema takes is taken by another, and what is said in them.

JSON Schema 2020-12; ``format`` and its like are taken for promises, as clients may hold a value to
them. Proofs only: what cannot be shown is a gap, so nothing is ever taken for harmless by mistake.
"""
