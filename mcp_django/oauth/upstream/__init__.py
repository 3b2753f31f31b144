"""Third-party authorization: servers that need the user's access at an upstream provider.

``flow`` redirects the user to the provider and gets the tokens, ``bindings`` binds this site's
tokens to the provider's grant, and ``access`` gives a running call its access token. Without a
provider in ``OAUTH["UPSTREAM"]``, none of them does anything.
"""
