"""Small models of the Llama family on a processor: one call of compiled code per pass."""
