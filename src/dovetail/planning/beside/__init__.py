"""What guard and drive put on objects beside Karpenter (10 §I)."""
