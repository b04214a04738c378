"""The ONNX front end: `load` makes a Program of a model, one row an operator.

Start at `loading.load`; `row.OnnxRow` says what a row is, `proto` what a file says.
"""

from samebits.onnx.loading import load

__all__ = ["load"]
