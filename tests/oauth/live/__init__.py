"""An OAuth site in a process of its own, with its middleware and CSRF checks as a site has them."""
