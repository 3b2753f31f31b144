"""One file for each family of methods: from request parameters to an outcome."""
