"""The tenants of the site that uses django-tenants."""
