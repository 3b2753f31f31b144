"""A site with django-helpdesk, whose forms and serializers have a field for each custom field."""
