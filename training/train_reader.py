"""Train the reader of pairs (`skep.semantics.pair_reader`): MiniLM reads an earlier and a later memory together.

It starts from the bundled encoder, whose words and positions it keeps as they are. Rows: the labelled pairs and
templates of `fit_judge`, every note with its nearest earlier notes, and notes of different topics that lie near one
another in a bank (both hold). Three runs with different seeds are averaged; their mean is less sure than each of them,
so its outputs are put on the scale of the first. Needs torch; some seven minutes on a GPU, hours on a processor.

    python -m training.train_reader                              # writes src/skep/semantics/data/reader.bin
    python -m training.train_reader --left-out readings.npz --published published   # three groups of writers left out
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from skep.embedding import minilm
from skep.embedding.minilm import CLS, HEADS, LAYERS, SEP, WIDTH, MiniLMEmbedder, read_tensors
from skep.embedding.static_table import bundled_wordpiece
from skep.semantics import pair_reader
from skep.semantics.pair_judge import KINDS, OUTPUTS, UPDATE
from training.fit_judge import Row, rows_of, texts_of
from training.fit_update_order import banks
from training.topics import read_topics

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, EPOCHS, RATE, DROPOUT = 64, 4, 5e-5, 0.1
SEEDS = (1, 2, 3)
NEAREST, ACROSS = 10, 10_000
"""Earlier notes of a bank that a note is read with, and how many pairs of different topics take part."""
NOTE_WEIGHT, TEMPLATE_WEIGHT = 0.3, 0.5
"""What a pair of notes counts in the loss of verdicts, and one of the templates in that of updates."""
Array = Any


class Reader(torch.nn.Module):
    """The forward pass of `pair_reader`, with gradients."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        tensors = read_tensors(folder / "minilm.bin", minilm.layout())
        self.weights = torch.nn.ParameterDict()
        for name, plain in tensors.plain.items():
            value = np.array(plain, np.float32)
            if name in tensors.scales:
                value *= tensors.scales[name][:, None]
            trained = name not in ("word", "position")
            self.weights[name.replace(".", "_")] = torch.nn.Parameter(
                torch.tensor(value), requires_grad=trained
            )
        self.side = torch.nn.Parameter(torch.zeros(2, WIDTH))
        self.side.data[1].normal_(0, 0.02)
        self.head, self.out = torch.nn.Linear(2 * WIDTH, WIDTH), torch.nn.Linear(WIDTH, OUTPUTS)

    def _drop(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x, DROPOUT, self.training)

    def _dense(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(x, self.weights[f"{name}_weight"], self.weights[f"{name}_bias"])

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = self.weights[f"{name}_weight"], self.weights[f"{name}_bias"]
        return functional.layer_norm(x, (WIDTH,), weight, bias, 1e-12)

    def forward(self, ids: torch.Tensor, side: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The outputs of a batch."""
        count, length = ids.shape
        x = self.weights["word"][ids] + self.weights["position"][:length] + self.side[side]
        x = self._drop(self._norm(x, "norm"))
        dropout = DROPOUT if self.training else 0.0
        for layer in range(LAYERS):
            every = self._dense(x, f"{layer}_mixer").view(count, length, 3, HEADS, -1)
            query, key, value = every.permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(  # queries are divided already
                query, key, value, attn_mask=mask[:, None, None, :], scale=1.0, dropout_p=dropout
            )
            mixed = mixed.transpose(1, 2).reshape(count, length, WIDTH)
            x = self._norm(x + self._drop(self._dense(mixed, f"{layer}_mixed")), f"{layer}_first")
            inner = functional.gelu(self._dense(x, f"{layer}_inner"))
            x = self._norm(x + self._drop(self._dense(inner, f"{layer}_outer")), f"{layer}_second")
        shown = mask[..., None].float()
        pooled = torch.cat([(x * shown).sum(1) / shown.sum(1), x[:, 0]], 1)
        return self.out(self._drop(torch.tanh(self.head(self._drop(pooled))))).float()


class Pieces:
    """Texts as word pieces, each cut once."""

    def __init__(self, texts: Sequence[str]) -> None:
        flat, sizes = bundled_wordpiece().cut(texts, None, pair_reader.LONGEST)
        ends = np.cumsum(sizes).tolist()
        self._of = {t: list(flat[end - size : end]) for t, end, size in zip(texts, ends, sizes, strict=True)}

    def size(self, pair: tuple[str, str]) -> int:
        """The word pieces of a pair."""
        return sum(len(self._of[text]) for text in pair)

    def batch(self, pairs: Sequence[tuple[str, str]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids, sides and mask of a batch."""
        rows = [[CLS, *self._of[a], SEP, *self._of[b], SEP] for a, b in pairs]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        place = torch.arange(longest)[None]
        lengths = torch.tensor([len(row) for row in rows])[:, None]
        second = torch.tensor([len(self._of[a]) + 2 for a, _ in pairs])[:, None]
        mask = place < lengths
        return ids.to(DEVICE), ((place >= second) & mask).long().to(DEVICE), mask.to(DEVICE)


def train(rows: Sequence[Row], pieces: Pieces, folder: Path, seed: int) -> Reader:
    """A reader that has seen these rows."""
    torch.manual_seed(seed)
    shuffled = random.Random(seed)
    reader = Reader(folder).to(DEVICE)
    fresh = [*reader.head.parameters(), *reader.out.parameters()]
    names = {id(p) for p in fresh}
    rest = [p for p in reader.parameters() if p.requires_grad and id(p) not in names]
    optimiser = torch.optim.AdamW([{"params": rest}, {"params": fresh}], weight_decay=0.01)
    steps, step = EPOCHS * math.ceil(len(rows) / BATCH), 0
    reader.train()
    for _ in range(EPOCHS):
        for batch in _batches(list(rows), pieces, shuffled):
            slope = min(1.0, (step + 1) / (0.1 * steps), max(0.01, (steps - step) / (0.9 * steps)))
            for group, rate in zip(optimiser.param_groups, (RATE, 10 * RATE), strict=True):
                group["lr"] = rate * slope
            step += 1
            loss = _loss(reader, batch, pieces)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
            optimiser.step()
    return reader.eval()


def _batches(rows: list[Row], pieces: Pieces, shuffled: random.Random) -> Iterator[list[Row]]:
    """Batches of rows of like length, in any order."""
    shuffled.shuffle(rows)
    for start in range(0, len(rows), BATCH * 50):
        part = sorted(rows[start : start + BATCH * 50], key=lambda row: pieces.size(row[:2]))
        found = [part[at : at + BATCH] for at in range(0, len(part), BATCH)]
        shuffled.shuffle(found)
        yield from found


def _loss(reader: Reader, rows: Sequence[Row], pieces: Pieces) -> torch.Tensor:
    with torch.autocast(DEVICE.type, torch.bfloat16):
        out = reader(*pieces.batch([row[:2] for row in rows]))
    label = torch.tensor([KINDS.index(row.label) for row in rows], device=DEVICE)
    of_verdict = [NOTE_WEIGHT if row.source in ("notes", "across") else 1.0 for row in rows]
    of_link = [
        0.0 if row.label == "contradicts" else TEMPLATE_WEIGHT if row.source == "templates" else 1.0
        for row in rows
    ]
    verdict = functional.cross_entropy(out[:, : len(KINDS)], label, reduction="none")
    link = functional.binary_cross_entropy_with_logits(
        out[:, UPDATE], (label == KINDS.index("updates")).float(), reduction="none"
    )
    return (verdict * torch.tensor(of_verdict, device=DEVICE)).mean() + (
        link * torch.tensor(of_link, device=DEVICE)
    ).mean()


@torch.no_grad()
def outputs(reader: Reader, pairs: Sequence[tuple[str, str]], pieces: Pieces) -> Array:
    """The outputs for pairs, in their order."""
    order = sorted(range(len(pairs)), key=lambda at: pieces.size(pairs[at]))
    found = np.zeros((len(pairs), OUTPUTS), np.float32)
    for start in range(0, len(order), 512):
        chosen = order[start : start + 512]
        with torch.autocast(DEVICE.type, torch.bfloat16):
            found[chosen] = reader(*pieces.batch([pairs[at] for at in chosen])).cpu().numpy()
    return found


def averaged(readers: Sequence[Reader], pairs: Sequence[tuple[str, str]], pieces: Pieces) -> Reader:
    """The mean of several readers, its outputs on the scale of the first."""
    first = outputs(readers[0], pairs, pieces)
    states = [reader.state_dict() for reader in readers]
    mean = readers[-1]
    mean.load_state_dict({name: sum(state[name] for state in states) / len(states) for name in states[0]})
    found = outputs(mean, pairs, pieces)
    for column in range(OUTPUTS):
        slope, shift = np.polyfit(found[:, column], first[:, column], 1)
        mean.out.weight.data[column] *= slope
        mean.out.bias.data[column] = mean.out.bias.data[column] * slope + shift
    return mean


def packed(reader: Reader) -> bytes:
    """The file: int8 with one scale per row where `layout` says so."""
    parts: list[bytes] = []
    state = {name: value.float().cpu().numpy() for name, value in reader.state_dict().items()}
    for name, _shape, scaled in pair_reader.layout():
        own = name.startswith(("side", "head", "out"))
        value = state[name if own and name in state else f"weights.{name.replace('.', '_')}"]
        if scaled:
            scales = np.abs(value).max(axis=1) / 127
            scales[scales == 0] = 1
            parts += [
                scales.astype("<f4").tobytes(),
                np.rint(value / scales[:, None]).astype(np.int8).tobytes(),
            ]
        else:
            parts.append(value.astype("<f4").tobytes())
    return b"".join(parts)


def bank_pairs(vectors: dict[str, Array]) -> list[Row]:
    """The notes of banks of sixty memories, each with its nearest earlier ones; those of two topics both hold."""
    found: list[Row] = []
    for bank in banks(read_topics()):
        notes = [
            (datetime.fromisoformat(note.at), number, note.text)
            for number, t in enumerate(bank)
            for note in t.notes
        ]
        notes.sort(key=lambda note: note[0])
        made = np.array([vectors[text] for _at, _number, text in notes])
        for later, (_at, topic, text) in enumerate(notes):
            for earlier in np.argsort(-(made[:later] @ made[later]))[:NEAREST].tolist():
                source = "across" if notes[earlier][1] != topic else "notes"
                found.append(Row(notes[earlier][2], text, "both", bank[0].writer, source, ""))
    return found


def main() -> None:
    """Train and write, or measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--left-out", type=Path, metavar="NPZ", help="leave writers out; what it says of their banks"
    )
    parser.add_argument("--published", type=Path, help="folder of the published encoder, to start from")
    args = parser.parse_args()
    topics = read_topics()
    texts = texts_of(topics)
    folder = args.published or Path(minilm.DATA)
    vectors = dict(zip(texts, MiniLMEmbedder().embed(texts), strict=True))
    in_banks = bank_pairs(vectors)
    across = [row for row in in_banks if row.source == "across"]
    random.Random(3).shuffle(across)
    rows = [*rows_of(topics, vectors), *across[:ACROSS]]
    pieces = Pieces(texts)
    if args.left_out is None:
        readers = [train(rows, pieces, folder, seed) for seed in SEEDS]
        some = random.Random(5).sample([row for row in rows if row.source != "across"], 600)
        Path(pair_reader.WEIGHTS).write_bytes(packed(averaged(readers, [row[:2] for row in some], pieces)))
        return
    writers = sorted({row.writer for row in rows})
    odds = np.zeros(len(in_banks), np.float32)
    for fold in range(3):
        its = set(writers[fold::3])
        reader = train([row for row in rows if row.writer not in its], pieces, folder, fold)
        chosen = [at for at, row in enumerate(in_banks) if row.writer in its]
        odds[chosen] = outputs(reader, [in_banks[at][:2] for at in chosen], pieces)[:, UPDATE]
    older, newer = (np.array([row[side] for row in in_banks], object) for side in (0, 1))
    np.savez(args.left_out, older=older, newer=newer, odds=odds)


if __name__ == "__main__":
    main()
