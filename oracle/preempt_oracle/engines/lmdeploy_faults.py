"""Faults for LMDeploy's PyTorch scheduler."""
from __future__ import annotations
FAULTS = ()
