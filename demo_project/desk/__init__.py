"""What the people at the operations desk write: notices about airports."""
