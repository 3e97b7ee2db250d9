"""What keeps an owner's numbers from being read: mechanisms on tensors."""
