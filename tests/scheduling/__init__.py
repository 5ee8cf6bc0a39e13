"""Random scheduling problems: do the engines agree, and is the answer one that the rules allow?"""
