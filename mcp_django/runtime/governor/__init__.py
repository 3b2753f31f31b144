"""How much of the database one call may use, and that a reading one does not write.

The call of a component that is declared ``read_only`` is governed: its statements, the rows that it
fetches and the time that the database takes are counted against ``MCP_DJANGO["LIMITS"]``, and
PostgreSQL and SQLite refuse its writes. A call that uses no database pays nothing; nothing is
opened for its sake.
"""
