"""Model families and how they scale."""
