"""TrainingJob: the Kubernetes resource for a job whose size the cluster may choose between a minimum and a maximum."""
