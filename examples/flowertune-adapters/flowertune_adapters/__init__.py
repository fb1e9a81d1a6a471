"""LoRA adapters of a language model, trained on authors who can leave."""
