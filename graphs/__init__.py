"""Any nn.Module becomes a typed DAG."""
