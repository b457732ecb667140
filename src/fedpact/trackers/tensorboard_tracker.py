"""Runs in TensorBoard."""

import os
import pathlib
import shutil

from fedpact.extras import install
from fedpact.trackers.base import Tracker


class TensorBoard(Tracker):
    """A run in TensorBoard (extra `tensorboard`): rounds as scalars, what was solved as text.

    - `folder`: for the run's event files, such as "runs/clinics"; the report page and the model are put beside them.

    Raises ImportError without tensorboardX, which writes the files.

        fp.solve(problem, parties, watch=fp.trackers.TensorBoard("runs/clinics"))    # then: tensorboard --logdir runs
    """

    def __init__(self, folder: str | os.PathLike[str]):
        super().__init__()
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ImportError(f"fp.trackers.TensorBoard needs tensorboardX: {install('tensorboard')}") from None
        self.folder = pathlib.Path(folder)
        self._writer = SummaryWriter(str(self.folder))

    def numbers(self, numbers: dict[str, float], round: int) -> None:
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, round)
        self._writer.flush()

    def words(self, words: dict[str, str]) -> None:
        for name, text in words.items():
            self._writer.add_text(name, text)

    def files(self, page: pathlib.Path, model: pathlib.Path) -> None:
        shutil.copy(page, self.folder / page.name)
        shutil.copytree(model, self.folder / model.name, dirs_exist_ok=True)

    def close(self) -> None:
        self._writer.close()
