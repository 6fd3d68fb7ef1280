"""A server of OpenAI's protocol: its address with the key, its description of itself, and its
answers; and the commands of other engines."""
