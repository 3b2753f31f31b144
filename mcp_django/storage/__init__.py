"""Rows of sessions, streams, tasks, approvals and the call log, and pub/sub between processes."""
