"""Make the bundled table: start from the plain recipe, then learn from MiniLM what texts mean as a whole.

    pip install torch
    python scripts/train_static_table.py --texts corpus.jsonl.gz ... --out src/skep/embedding/data

Texts are gzipped JSON lines with a `text`; no labels are used. MiniLM embeds each text; the rows of the table
are then moved so that the sum of a text's rows points where MiniLM points, and so that texts are as close to
each other as MiniLM finds them. The result is mixed with the recipe, because rare words are seen too seldom
to be learnt. Needs torch; a GPU does it in a minute.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path

import build_static_table as recipe
import minilm
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from skep.embedding.wordpiece import WordPiece

LENGTH = 126
BATCH, STEPS, RATE = 4096, 3000, 2e-3
TEMPERATURE, POINTING = 0.1, 5.0
MIX = 0.7
"""Share of what was learnt; the rest stays with the recipe."""


def read_texts(paths: Sequence[Path]) -> list[str]:
    """Distinct texts of gzipped JSON lines, in order."""
    found: dict[str, None] = {}
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            found.update((json.loads(line)["text"].strip(), None) for line in lines)
    found.pop("", None)
    return list(found)


class Teacher:
    """MiniLM in torch, in half precision where there is a GPU."""

    def __init__(self, weights: minilm.Weights, device: str) -> None:
        self.device = device
        self.kind = torch.float16 if device == "cuda" else torch.float32
        self.weights = {name: torch.tensor(w).to(device, self.kind) for name, w in weights.items()}

    def _dense(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self.weights[f"{name}.weight"].float(), self.weights[f"{name}.bias"].float()
        return F.layer_norm(x.float(), (minilm.WIDTH,), weight, bias, 1e-12).to(self.kind)

    @torch.no_grad()
    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The last hidden state of a padded batch."""
        batch, length = ids.shape
        x = self.weights["embeddings.word_embeddings.weight"][ids]
        x = x + self.weights["embeddings.position_embeddings.weight"][:length]
        x = self._norm(x + self.weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(minilm.LAYERS):
            name = f"encoder.layer.{layer}"
            q, k, v = (
                self._dense(x, f"{name}.attention.self.{part}")
                .view(batch, length, minilm.HEADS, -1)
                .transpose(1, 2)
                for part in ("query", "key", "value")
            )
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
            mixed = self._dense(mixed.transpose(1, 2).flatten(2), f"{name}.attention.output.dense")
            x = self._norm(x + mixed, f"{name}.attention.output.LayerNorm")
            h = F.gelu(self._dense(x, f"{name}.intermediate.dense"))
            x = self._norm(x + self._dense(h, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        return x.float()

    def embed(self, texts: Sequence[Sequence[int]], batch: int = 2048) -> Tensor:
        """Mean-pooled unit rows of token ids."""
        out = torch.zeros(len(texts), minilm.WIDTH, device=self.device)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            rows = [torch.tensor([minilm.CLS, *texts[i], minilm.SEP]) for i in chosen]
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=0)
            lengths = torch.tensor([len(row) for row in rows])
            mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).to(self.device)
            x = self.states(ids.to(self.device), mask)
            out[chosen] = F.normalize((x * mask[..., None]).sum(1), dim=1)
        return out

    def words(self, size: int, batch: int = 2048) -> Tensor:
        """The output state of every vocabulary entry on its own."""
        out = torch.zeros(size, minilm.WIDTH, device=self.device)
        for chunk in torch.arange(size, device=self.device).split(batch):
            ids = torch.stack(
                [torch.full_like(chunk, minilm.CLS), chunk, torch.full_like(chunk, minilm.SEP)], 1
            )
            out[chunk] = self.states(ids, torch.ones_like(ids, dtype=torch.bool))[:, 1]
        return out


class Bags:
    """Token ids of many texts in one flat tensor."""

    def __init__(self, texts: Sequence[Sequence[int]], device: str) -> None:
        self.flat = torch.tensor(np.concatenate([np.asarray(t, np.int64) for t in texts]), device=device)
        self.lengths = torch.tensor([len(t) for t in texts], device=device)
        self.starts = torch.cumsum(self.lengths, 0) - self.lengths

    def sums(self, table: Tensor, chosen: Tensor) -> Tensor:
        """Unit sums of the rows of the chosen texts."""
        lengths = self.lengths[chosen]
        offsets = torch.cumsum(lengths, 0) - lengths
        places = torch.repeat_interleave(self.starts[chosen] - offsets, lengths)
        places = places + torch.arange(len(places), device=places.device)
        return F.normalize(F.embedding_bag(self.flat[places], table, offsets, mode="sum"), dim=1)


def closeness(ours: Tensor, theirs: Tensor) -> Tensor:
    """How far our ranking of neighbours is from the teacher's, over the batch."""
    mine, target = (x @ x.T / TEMPERATURE for x in (ours, theirs))
    for scores in (mine, target):
        scores.fill_diagonal_(-1e4)
    return F.kl_div(F.log_softmax(mine, 1), F.log_softmax(target, 1), reduction="batchmean", log_target=True)


def learn(start: Tensor, bags: Bags, taught: Tensor, pointing: Tensor, steps: int) -> Tensor:
    """Move the rows of the table towards what the teacher says."""
    table = start.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([table], lr=RATE, betas=(0.9, 0.99))
    for step in range(steps):
        rate = RATE * 0.5 * (1 + math.cos(math.pi * step / steps)) * min(1, (step + 1) / 50)
        optimizer.param_groups[0]["lr"] = rate
        chosen = torch.randint(0, len(taught), (BATCH,), device=taught.device).unique()
        ours = bags.sums(table, chosen)
        loss = closeness(ours, taught[chosen]) + POINTING * (1 - (ours * pointing[chosen]).sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 500 == 0:
            print(f"step {step}: loss {float(loss.detach()):.3f}", flush=True)
    return table.detach()


def main() -> None:
    """Train and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, default=Path("build/wheels"))
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, default=Path("src/skep/embedding/data"))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    wheel = minilm.find_wheel(args.wheels)
    vocabulary = minilm.read_vocabulary(wheel)
    teacher = Teacher(minilm.read_weights(wheel), device)
    wordpiece = WordPiece(vocabulary)
    texts = [ids for text in read_texts(args.texts) if (ids := wordpiece.ids(text)[:LENGTH])]
    texts += [[word] for word in range(recipe.FIRST_WORD, len(vocabulary))]
    print(f"{len(texts)} texts", flush=True)
    states = teacher.words(len(vocabulary))
    basis = torch.tensor(recipe.directions(states.cpu().numpy()), device=device)
    start = states @ basis * torch.tensor(recipe.sif_weights(len(vocabulary)), device=device)[:, None]
    start = start / start[recipe.FIRST_WORD :].norm(dim=1).mean()
    taught = teacher.embed(texts)
    learnt = learn(start, Bags(texts, device), taught, F.normalize(taught @ basis, dim=1), args.steps)
    mixed = (MIX * learnt + (1 - MIX) * start).cpu().numpy()
    mixed[: recipe.FIRST_REAL] = 0
    recipe.write_table(
        mixed, vocabulary, args.out, recipe=f"recipe, then {args.steps} steps on {len(texts)} texts"
    )


if __name__ == "__main__":
    main()
