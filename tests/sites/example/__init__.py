"""The shared example site: one of every kind of component, for tests that need an ordinary one."""
