"""TOFU with 200 authors as 200 clients: a small base of our own, a federation of adapters, its measures."""
