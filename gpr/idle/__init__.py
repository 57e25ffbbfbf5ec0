"""Boxes whose GPUs do nothing: warned, kept on demand, and released at the end of their time-out."""
