"""The site's own views and forms, called as components."""
