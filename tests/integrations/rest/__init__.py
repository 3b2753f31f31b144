"""A site with twenty kinds of REST view, which are tools as well."""
