"""Airports: their positions, and the distances and routes between them."""
