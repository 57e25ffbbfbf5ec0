"""Ways into a cluster with a kubeconfig, without kubectl."""
