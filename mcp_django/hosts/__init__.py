"""The applications that connect to servers: what each reads, and what it is given."""
