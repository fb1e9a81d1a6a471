"""The paper's tables and figures, on correct code, and ours beside them."""
