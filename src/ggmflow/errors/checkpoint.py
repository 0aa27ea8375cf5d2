"""The exception for a checkpoint that training cannot continue from."""

from pathlib import Path


class CheckpointError(ValueError):
    """A checkpoint is damaged, or belongs to another fit.

    Attributes
    ----------
    path : Path
        The file.
    reason : str
        The defect.
    """

    def __init__(self, path: Path, reason: str):
        self.path, self.reason = path, reason
        super().__init__(path, reason)  # as `args`, so that the exception can be pickled

    def __str__(self) -> str:
        return f"{self.path} is no checkpoint of this fit: {self.reason}"
