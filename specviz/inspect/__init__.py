"""Questions about a run: do the texts follow one distribution, and where do two lanes diverge?"""
