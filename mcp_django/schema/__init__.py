"""Python and Django types on one side, JSON Schema and JSON values on the other.

`annotations`, `forms`, `serializers` and `raw` turn what a developer declares into an
`ArgumentSource`: a schema to publish, and a parser that yields keyword arguments or says what to
repair. `output` and `jsonable` go the other way. Nothing here knows what a tool, a request or a
revision is.
"""
