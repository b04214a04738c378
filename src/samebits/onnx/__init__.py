"""The ONNX front end: `load` makes a Program of a model, one row an operator.

Start at `loading.load`; `row.OnnxRow` says what a row is, `proto` is the only file that imports onnx.
"""

from samebits.onnx.loading import load

__all__ = ["load"]
