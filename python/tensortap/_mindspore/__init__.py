"""Taps of MindSpore."""
