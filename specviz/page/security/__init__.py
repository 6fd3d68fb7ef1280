"""Protection of the page: addresses, sizes, headers, the password, and errors as sentences."""
