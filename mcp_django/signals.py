"""Signals of the package; receivers run where the event happens and must be quick."""

from __future__ import annotations

from django.dispatch import Signal

# A component's function raised what is a bug and no answer: after it was logged. Sender: the class
# of the component. Arguments: ``component``, ``exception``.
component_failed = Signal()

# A component is about to run, admitted and with arguments that fit. Sender: the model ``Call``.
# Argument: ``call``, a line of the call log that is not saved yet.
call_started = Signal(use_caching=True)

# What became of a use of a component, or of the attempt. Sender: the model ``Call``. Argument:
# ``call``, the line as it is or will be in the call log; it may have no primary key yet.
# A receiver that fails is logged. One of an async component runs in a thread.
call_finished = Signal(use_caching=True)

# A call waits for a person to approve it. Sender: the model ``Approval``. Arguments: ``approval``,
# its row, and ``url``, the page on which it is decided (empty where there is none).
approval_requested = Signal()

# A person has decided about a call. Sender: the model ``Approval``. Arguments: ``approval``, its
# row, and ``user``, who decided.
approval_decided = Signal()
