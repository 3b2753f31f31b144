"""The pure core: what goes over the wire, revision by revision.

Nothing in here knows Django, does input or output, reads a clock or draws a random number;
what needs those gets them as arguments. Import from the modules, not from the package.
"""
