"""Adapters of language models: clients hold text, and LoRA matrices over one frozen base are trained."""
