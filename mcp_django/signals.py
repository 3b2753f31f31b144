"""Signals of the package; receivers run synchronously and must be fast."""

from __future__ import annotations

from django.dispatch import Signal

# Sent after an unexpected exception of a component's function was logged. Sender: the class of the
# component. Arguments: ``component``, ``exception``.
component_failed = Signal()

# Sent before a component runs, after authorization and validation of the arguments. Sender: the
# model ``Call``. Argument: ``call``, the call record, not saved yet.
call_started = Signal(use_caching=True)

# Sent when a call ends or is rejected. Sender: the model ``Call``. Argument: ``call``, the record
# as it is or will be in the call log; it may have no primary key yet. Exceptions of receivers are
# logged. For an async component, receivers run in a thread.
call_finished = Signal(use_caching=True)

# Sent when a call waits for an approval. Sender: the model ``Approval``. Arguments: ``approval``,
# its row, and ``url``, the page where it can be approved (may be empty).
approval_requested = Signal()

# Sent when a call is approved or rejected. Sender: the model ``Approval``. Arguments: ``approval``,
# its row, and ``user``, the approver.
approval_decided = Signal()
