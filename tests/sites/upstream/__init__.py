"""An external identity provider: a Django site with the OAuth toolkit and OpenID Connect, in a
process of its own and without this package.
"""
