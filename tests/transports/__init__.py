"""Tests of the transports: HTTP on every mount, and stdio."""
