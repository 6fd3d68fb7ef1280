"""A server of OpenAI's protocol: its address with the key, what it says of itself, its answers."""
