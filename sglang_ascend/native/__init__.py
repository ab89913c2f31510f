"""Kernels of the reference device in C, compiled on the machine that runs them."""
