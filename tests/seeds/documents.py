"""The manifests of the seed documents that several tests read, in their literal text."""

SEED_000_API = """
apiVersion: v1
kind: Pod
metadata:
  name: long-running-job
  annotations:
    karpenter.sh/do-not-disrupt: "4h"  # Protected for 4 hours
spec:
  # ...
"""
SEED_000_CRITICAL = """
apiVersion: v1
kind: Pod
metadata:
  name: critical-service
  annotations:
    karpenter.sh/do-not-disrupt: "true"
spec:
  containers:
  - name: service
    image: critical-app:latest
"""
SEED_000_JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: data-processing-job
spec:
  template:
    metadata:
      annotations:
        karpenter.sh/do-not-disrupt: "2h"
    spec:
      containers:
      - name: processor
        image: data-processor:latest
        # Job that typically completes in 1-2 hours
"""
SEED_000_TRAINING = """
apiVersion: v1
kind: Pod
metadata:
  name: ml-training
  annotations:
    karpenter.sh/do-not-disrupt: "24h"
spec:
  containers:
  - name: trainer
    image: ml-framework:latest
    # Training job expected to complete in ~20 hours
"""
SEED_001_ALTERNATIVE_1 = """
apiVersion: karpenter.sh/v1
kind: NodePool
spec:
  disruption:
    budgets:
    - schedule: "0 2 * * 6"
      duration: 4h
      nodes: "100%"
    - nodes: "0"  # Block at all other times
"""
SEED_001_BATCH = """
metadata:
  annotations:
    karpenter.sh/disruption-schedule: "0 0 * * 0"    # Midnight Sunday
    karpenter.sh/disruption-schedule-duration: "24h" # All day
"""
SEED_001_BUSINESS = """
metadata:
  annotations:
    karpenter.sh/disruption-schedule: "0 22 * * *"   # 10 PM daily
    karpenter.sh/disruption-schedule-duration: "8h"  # Until 6 AM
"""
SEED_001_OPTION_B = """
metadata:
  annotations:
    # Pod cannot be disrupted on weekdays during business hours
    karpenter.sh/disruption-block-schedule: "0 9 * * 1-5"
    karpenter.sh/disruption-block-duration: "8h"
"""
SEED_001_SPEC = """
apiVersion: v
kind: Pod
metadata:
  name: long-running-task
  annotations:
    # Cron schedule defining the disruption window
    karpenter.sh/disruption-schedule: "0 2 * * 6"  # 2 AM on Saturdays
    # Duration of the disruption window
    karpenter.sh/disruption-schedule-duration: "4h"
"""
SEED_001_TRAINING = """
metadata:
  annotations:
    karpenter.sh/disruption-schedule: "0 2 * * 6"    # 2 AM Saturday
    karpenter.sh/disruption-schedule-duration: "6h"  # Until 8 AM
"""
SEED_002_ALTERNATIVE = """
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata:
  name: default
spec:
  disruption:
    terminationGracePeriod: 24h   # metav1.Duration, nil if not set
"""
SEED_002_SPEC = """
apiVersion: karpenter.sh/v1beta1
kind: NodeClaim
spec:
  terminationGracePeriod: 24h   # metav1.Duration, nil if not set
"""
SEED_004_APPROACH_B = """
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata:
  name: example-nodepool
spec:
  disruption:
    defaults:
      budgets:
        - nodes: 10%
          schedule: "0 0 1 * *"
          duration: 1h
    consolidation:
      consolidationPolicy: WhenUnderutilized
      disruptAfter: "30m"
    drift:
      budgets:
        - nodes: "20%"
          schedule: "0 0 1 * *"
          duration: "1h"
        - nodes: "10%"
          schedule: "0 0 * * 0"
          duration: "2h"
        - nodes: "50%"
          schedule: "@monthly"
"""
