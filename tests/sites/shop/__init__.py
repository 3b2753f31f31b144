"""A shop with something of everything that a model can have, and with secrets in each table."""
