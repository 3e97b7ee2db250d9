"""The processes of one party on its machine."""
