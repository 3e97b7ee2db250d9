"""The paper's tables and figures, made again beside the paper's own values."""
