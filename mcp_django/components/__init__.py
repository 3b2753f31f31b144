"""The developer's API: components, the context, client requests, and the component registry."""
