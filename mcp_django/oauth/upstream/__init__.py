"""Third-party authorization: servers whose users also have to let the site in somewhere else.

``flow`` sends a user to the provider and takes him back, ``bindings`` ties our tokens to what the
provider granted, ``access`` hands that to a running call. Without a provider in
``OAUTH["UPSTREAM"]`` none of them does anything.
"""
