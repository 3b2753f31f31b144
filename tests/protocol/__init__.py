"""The protocol core, alone: no Django, no database, no transport."""
