"""The record of answers: what each request gets on each mount, at each revision, as each caller.

`site` and its components are the servers, the modules named `cases_*` the requests, and `recorded`
the answers. See `test_record` for how to compare and how to record.
"""
