"""Notices about airports, published by the staff of the operations desk."""
