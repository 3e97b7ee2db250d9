"""Known attacks, one small file each."""
