"""A site with django-oscar: a tree of categories, and an admin that declares little."""
