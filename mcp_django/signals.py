"""Signals of the package; receivers run where the event happens and must be quick."""

from __future__ import annotations

from django.dispatch import Signal

# A component's function raised what is a bug and no answer: after it was logged. Sender: the class
# of the component. Arguments: ``component``, ``exception``.
component_failed = Signal()
