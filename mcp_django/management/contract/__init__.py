"""The contract file: what a site's servers promise to clients, and what a change means to them."""
