"""A site with Wagtail's pages, and with trees of django-treebeard and django-mptt."""
