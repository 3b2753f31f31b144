"""Found by autodiscovery: imports every kind of component, so that it is registered."""

from tests.conformance import prompts, questions, resources, tasks, tools

__all__ = ["prompts", "questions", "resources", "tasks", "tools"]
