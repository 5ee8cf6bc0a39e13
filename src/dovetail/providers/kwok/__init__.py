"""The kwok provider: Nodes without machines behind them, in any cluster in which kwok runs."""
