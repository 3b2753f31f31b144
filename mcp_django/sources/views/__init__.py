"""The site's own views and forms as components: each call is a request of its own."""
