"""What outlives a request: sessions, streams, tasks, approvals, the call log, and their pub/sub."""
