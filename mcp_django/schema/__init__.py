"""Python and Django types on one side, JSON Schema and JSON values on the other.

`signature`, `django_forms`, `serializers` and `compiled` turn what a developer declares into an
`ArgumentSource`: a schema to publish, and a parser that yields keyword arguments or says what to
repair. `signature` and `compiled` do the same for results, and `values` writes those without a
declared type. Nothing here knows what a tool, a request or a revision is.
"""
