"""Tensors in files: safetensors, .npy and .npz, read without copying and written as a whole or not at all.

Start at `open`, `load` and `save`; `create` writes one part after another, so that memory stays bounded.
"""

from samebits.checkpoint.parts import QuantizedNote
from samebits.checkpoint.reading import Checkpoint, load, open
from samebits.checkpoint.stored import StoredTensor
from samebits.checkpoint.writing import KINDS, NewCheckpoint, create, save

__all__ = ["KINDS", "Checkpoint", "NewCheckpoint", "QuantizedNote", "StoredTensor", "create", "load", "open", "save"]
