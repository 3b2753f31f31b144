"""Clients written by others, which use sites that run in other processes."""
