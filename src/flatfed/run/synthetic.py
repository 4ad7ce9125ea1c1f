"""The samples that a method's server has distilled: saved, and drawn."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor
from torch.nn.functional import pad

from flatfed.data.transforms import Prepare
from flatfed.disk import write_vectors
from flatfed.errors import RunError
from flatfed.parts.distil import Distillation, samples
from flatfed.run.folder import RunFolder
from flatfed.training import Standing, Training

SHOWN = 20  # samples of a class, at most, in the picture


def save_synthetic(folder: RunFolder, training: Training, standing: Standing) -> None:
    """synthetic.safetensors (inputs as the model takes them, labels) and its picture, if the
    server has any."""
    parts = training.method.parts
    distillation = next((part for part in parts if isinstance(part, Distillation)), None)
    if distillation is None or not standing.state["syn"].numel():
        return
    data, prepare = training.federation.data, training.federation.prepare
    labels = standing.state.get("syn_labels")
    inputs, labels = samples(standing.state["syn"], data.shape, distillation.ipc, labels)
    try:
        write_vectors(folder.path / "synthetic.safetensors", {"inputs": inputs, "labels": labels})
        if len(data.shape) == 3 and data.shape[0] in (1, 3):
            path = folder.figures / "synthetic.png"
            draw_synthetic(inputs, distillation.ipc, data.classes, prepare, path)
    except OSError as error:
        raise RunError(
            f"The distilled samples could not be written: {error.strerror or error}.\n"
            "Make room, then go on with --resume."
        ) from error


def draw_synthetic(
    inputs: Tensor, ipc: int, classes: tuple[str, ...], prepare: Prepare, path: Path
) -> None:
    """A row for every class, in the colours of the data set: what lies outside them is cut off."""
    from matplotlib.figure import Figure

    columns = min(ipc, SHOWN)
    rows = inputs.view(len(classes), ipc, *inputs.shape[1:])[:, :columns]
    framed = pad(prepare.undone(rows).clamp(0, 1), (1, 1), value=1.0)
    shown = framed.permute(0, 3, 1, 4, 2).flatten(2, 3).numpy()
    figure = Figure(figsize=(0.5 * columns + 1.2, 0.5 * len(classes) + 0.5), layout="constrained")
    for number, axes in enumerate(figure.subplots(len(classes), 1, squeeze=False)[:, 0]):
        axes.imshow(shown[number].squeeze(-1), cmap="gray", vmin=0, vmax=1)
        axes.set_yticks([])
        axes.set_xticks([])
        axes.spines[:].set_visible(False)
        axes.set_ylabel(classes[number], rotation=0, ha="right", va="center", fontsize=8)
    figure.suptitle("Distilled samples", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
