"""Conversion between Python and Django types and JSON Schema and JSON values.

`signature`, `django_forms`, `serializers` and `compiled` create an `ArgumentSource` from what a
developer declares: a schema to publish, and a parser that returns keyword arguments or lists the
problems to correct. `output` and `compiled` do the same for results, and `values` serializes
results without a declared type. `portable` makes every published schema one that hosts and clients
can read. This package does not depend on tools, requests or revisions.
"""
