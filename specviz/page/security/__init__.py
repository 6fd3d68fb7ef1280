"""What visitors may reach: addresses, sizes, headers, passwords, and errors as sentences."""
