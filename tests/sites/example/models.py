"""The example site's data. It grows with the components that need rows."""
