"""Karpenter, as far as guard and drive work beside it."""
