"""Guard and drive: what Dovetail does on a cluster whose controller is Karpenter (10 §I)."""
