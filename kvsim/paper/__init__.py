"""The vLLM paper's evaluation, a published figure or table a module, its published numbers beside it."""
