"""Jobs of one namespace of a Kubernetes cluster: each is a job record (a ConfigMap) that owns everything else."""
