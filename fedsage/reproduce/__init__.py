"""The paper's tables and figures, reproduced beside the paper's own values."""
