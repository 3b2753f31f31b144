"""Tests of tasks, from the call to the worker that runs it."""
