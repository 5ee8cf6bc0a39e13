"""Providers of machines: what each brings to the program, and what several share."""
