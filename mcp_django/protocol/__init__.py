"""The protocol core: message formats and rules of each revision, without I/O.

Nothing here imports Django, does I/O, reads the clock or generates random numbers; code that needs
such values takes them as arguments. Import from the modules, not from the package.
"""
