"""all-MiniLM-L6-v2 on a dozen sentences: the embeddings that its users compute with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer

from tests.interop.model_weights import weights_file

SENTENCES = (
    "The cat sits outside.",
    "A man is playing guitar.",
    "The new movie is awesome.",
    "A woman watches TV.",
    "The quick brown fox jumps over the lazy dog.",
    "Quantization maps real numbers to integers.",
    "How do I reset my password?",
    "I forgot my login credentials.",
    "The stock market fell sharply today.",
    "Il pleut à Paris.",
    "Bread is made from flour, water and yeast.",
    "Photosynthesis turns light into chemical energy.",
)
IGNORE = "re:.*(embeddings|LayerNorm|pooler)"
"""What stays f32: the word embeddings are half of the file, and sentence embeddings do not use the pooler."""


def copy_model(target: Path) -> Path | None:
    """Copy the model's directory, and return it; None where the package is not installed."""
    file = weights_file()
    return None if file is None else Path(shutil.copytree(file.parent, target))


def embeddings(folder: Path, dtype: str = "float32") -> torch.Tensor:
    """Return a unit vector for each sentence: the mean over its tokens, as the model's card computes it."""
    tokens = AutoTokenizer.from_pretrained(folder)(list(SENTENCES), padding=True, return_tensors="pt")
    model = AutoModel.from_pretrained(folder, dtype=dtype).eval()
    with torch.no_grad():
        states = model(**tokens).last_hidden_state.float()
    mask = tokens["attention_mask"][..., None].float()
    return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)


def cosines(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the cosine of each sentence's two embeddings."""
    return (first * second).sum(1)
