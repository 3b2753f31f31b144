"""From a message to its outcome: dispatch, policy and the call of the developer's function."""
