"""Fine-tune MiniLM on the topic files: a question lies near the memories that answer it, also in other words.

Contrastive loss over whole topics (the other memories of a topic are the hard negatives), then the mean of the
fine-tuned and the original weights (`--mix`), which keeps what the original knows. Needs torch and tokenizers; minutes
on a processor, seconds on a GPU.

    python -m training.train_embedder --base base16.npz --vocab vocab.txt --out tuned.npz
    python -m training.train_embedder --base base16.npz --vocab vocab.txt --left-out   # figures, writer by writer
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from training.topics import Topic, read_topics

LAYERS, HEADS, WIDTH = 6, 12, 384
LONGEST = 128
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Weights = dict[str, torch.Tensor]


class Encoder:
    """The forward pass of a BERT of six layers with mean pooling."""

    def __init__(self, weights: Weights, vocabulary: Path) -> None:
        from tokenizers import BertWordPieceTokenizer

        self.weights = weights
        self._tokenizer = BertWordPieceTokenizer(str(vocabulary), lowercase=True)
        self._tokenizer.enable_truncation(LONGEST)
        self.dropout = 0.0

    def __call__(self, texts: Sequence[str]) -> torch.Tensor:
        rows = [encoded.ids for encoded in self._tokenizer.encode_batch(list(texts))]
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=DEVICE)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=DEVICE).bool()
        states = self._states(ids, mask)
        pooled = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return functional.normalize(pooled, dim=1)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return functional.layer_norm(x, (WIDTH,), weight, bias, 1e-12)

    def _dense(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _drop(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x, self.dropout, training=self.dropout > 0)

    def _states(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length = ids.shape
        x = self.weights["embeddings.word_embeddings.weight"][ids]
        x = x + self.weights["embeddings.position_embeddings.weight"][:length]
        x = x + self.weights["embeddings.token_type_embeddings.weight"][0]
        x = self._drop(self._norm(x, "embeddings.LayerNorm"))
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}"
            query, key, value = (
                self._dense(x, f"{name}.attention.self.{part}").view(batch, length, HEADS, -1).transpose(1, 2)
                for part in ("query", "key", "value")
            )
            mixed = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=mask[:, None, None, :], dropout_p=self.dropout
            )
            mixed = mixed.transpose(1, 2).reshape(batch, length, WIDTH)
            mixed = self._drop(self._dense(mixed, f"{name}.attention.output.dense"))
            x = self._norm(x + mixed, f"{name}.attention.output.LayerNorm")
            inner = functional.gelu(self._dense(x, f"{name}.intermediate.dense"))
            x = self._norm(
                x + self._drop(self._dense(inner, f"{name}.output.dense")), f"{name}.output.LayerNorm"
            )
        return x


def read_weights(path: Path) -> Weights:
    """The weights of a model, by name."""
    return {
        name: torch.tensor(value.astype(np.float32), device=DEVICE) for name, value in np.load(path).items()
    }


def mixed(base: Weights, tuned: Weights, share: float) -> Weights:
    """The weighted mean of two models."""
    return {name: (1 - share) * base[name] + share * tuned[name].detach() for name in base}


def tune(
    base: Weights,
    topics: Sequence[Topic],
    vocabulary: Path,
    *,
    rate: float,
    epochs: int,
    scale: float = 20.0,
    per_batch: int = 8,
    pair_weight: float = 0.3,
    seed: int = 0,
) -> Weights:
    """Train a copy of the weights on topics."""
    torch.manual_seed(seed)
    shuffled = random.Random(seed)
    weights = {name: value.clone().requires_grad_(True) for name, value in base.items()}
    encoder = Encoder(weights, vocabulary)
    encoder.dropout = 0.1
    frozen = {"embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight"}
    trained = [value for name, value in weights.items() if name not in frozen]
    optimiser = torch.optim.AdamW(trained, lr=rate, weight_decay=0.01)
    steps = epochs * math.ceil(len(topics) / per_batch)
    step = 0
    for _ in range(epochs):
        order = list(topics)
        shuffled.shuffle(order)
        for start in range(0, len(order), per_batch):
            for group in optimiser.param_groups:
                group["lr"] = rate * min(1.0, (step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps))
            step += 1
            loss = _loss(encoder, order[start : start + per_batch], scale, pair_weight)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimiser.step()
    return {name: value.detach() for name, value in weights.items()}


def _loss(encoder: Encoder, topics: Sequence[Topic], scale: float, pair_weight: float) -> torch.Tensor:
    texts, places = [], {}
    for number, topic in enumerate(topics):
        for note in topic.notes:
            places[number, note.id] = len(texts)
            texts.append(note.text)
    questions = [(number, q) for number, topic in enumerate(topics) for q in topic.questions if q.answers]
    memories, asked = encoder(texts), encoder([q.text for _, q in questions])
    right = torch.zeros(len(questions), len(texts), dtype=torch.bool, device=DEVICE)
    ignored = torch.zeros_like(right)
    for row, (number, question) in enumerate(questions):
        for answer in question.answers:
            right[row, places[number, answer]] = True
        if question.type in ("current", "past"):  # two texts of one thing: time decides, not meaning
            for near in question.near:
                ignored[row, places[number, near]] = True
    logits = (scale * asked @ memories.T).masked_fill(ignored & ~right, -1e4)
    loss = (torch.logsumexp(logits, 1) - torch.logsumexp(logits.masked_fill(~right, -1e4), 1)).mean()
    same = [pair for topic in topics for pair in topic.pairs if pair.label == "same"]
    if same and pair_weight:
        others = [pair.later for topic in topics for pair in topic.pairs if pair.label == "both"]
        one, other = encoder([p.earlier for p in same]), encoder([p.later for p in same] + others)
        target = torch.arange(len(same), device=DEVICE)
        loss = loss + pair_weight * functional.cross_entropy(scale * one @ other.T, target)
    return loss


def first_and_five(
    encoder: Encoder, topics: Iterable[Topic], group: int = 3
) -> dict[str, tuple[float, float, int]]:
    """Share of questions whose answer is first, and among five, by type; cosine alone, banks of `group` topics."""
    counts: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    every = list(topics)
    with torch.no_grad():
        for start in range(0, len(every), group):
            bank = every[start : start + group]
            notes = [(number, note) for number, topic in enumerate(bank) for note in topic.notes]
            memories = encoder([note.text for _, note in notes])
            questions = [
                (number, q) for number, topic in enumerate(bank) for q in topic.questions if q.answers
            ]
            best = (encoder([q.text for _, q in questions]) @ memories.T).topk(5, dim=1).indices.tolist()
            for (number, question), found in zip(questions, best, strict=True):
                hit = [notes[at][0] == number and notes[at][1].id in question.answers for at in found]
                counts[question.type].append((hit[0], any(hit)))
                counts["all"].append((hit[0], any(hit)))
    return {
        kind: (float(np.mean([a for a, _ in got])), float(np.mean([b for _, b in got])), len(got))
        for kind, got in sorted(counts.items())
    }


def vectors_of(encoder: Encoder, topics: Iterable[Topic]) -> dict[str, np.ndarray]:
    """The vectors of the notes, questions and pairs of topics."""
    texts: dict[str, None] = {}
    for topic in topics:
        texts |= dict.fromkeys(note.text for note in topic.notes)
        texts |= dict.fromkeys(question.text for question in topic.questions)
        texts |= dict.fromkeys(text for pair in topic.pairs for text in (pair.earlier, pair.later))
    every = list(texts)
    with torch.no_grad():
        made = [encoder(every[at : at + 256]).float().cpu().numpy() for at in range(0, len(every), 256)]
    return dict(zip(every, np.concatenate(made), strict=True))


def _line(figures: dict[str, tuple[float, float, int]]) -> str:
    return "  ".join(f"{kind} {one:.3f}/{five:.3f}" for kind, (one, five, _) in figures.items())


def main() -> None:
    """Train, or measure writers left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--vocab", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rate", type=float, default=3e-5)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--mix", type=float, default=0.7)
    parser.add_argument("--left-out", action="store_true")
    parser.add_argument("--vectors", type=Path, help="with --left-out: the vectors of each writer's texts")
    args = parser.parse_args()
    base, topics = read_weights(args.base), read_topics()
    if args.left_out:
        report: dict[str, Any] = {}
        seen: dict[str, np.ndarray] = {}
        for writer in sorted({topic.writer for topic in topics}):
            rest = [topic for topic in topics if topic.writer != writer]
            its = [topic for topic in topics if topic.writer == writer]
            tuned = tune(base, rest, args.vocab, rate=args.rate, epochs=args.epochs)
            before = first_and_five(Encoder(base, args.vocab), its)
            encoder = Encoder(mixed(base, tuned, args.mix), args.vocab)
            after = first_and_five(encoder, its)
            seen |= vectors_of(encoder, its)
            report[writer] = {"before": before, "after": after}
            print(writer, "before", _line(before), "\n   after ", _line(after), flush=True)
        if args.out:
            args.out.write_text(json.dumps(report, indent=1))
        if args.vectors:
            made = np.stack(list(seen.values()))
            np.savez(args.vectors, texts=np.array(list(seen)), vectors=made.astype(np.float16))
        return
    tuned = tune(base, topics, args.vocab, rate=args.rate, epochs=args.epochs)
    result = mixed(base, tuned, args.mix)
    np.savez(args.out, **{name: value.cpu().numpy().astype(np.float16) for name, value in result.items()})


if __name__ == "__main__":
    main()
