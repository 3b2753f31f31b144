"""An OAuth site in a process of its own, with middleware and CSRF checks as in production."""
