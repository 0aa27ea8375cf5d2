"""States of a fit in a run directory, and the actions that lead from one to the next.

status        files beside run.json                                         the fit
starting      files of an earlier fit may still be there                    has not begun
running       checkpoint after a while; results near the end                is computed, or its process was killed
interrupted   as running                                                    was stopped by Ctrl-C or SIGTERM
failed        as running; without a checkpoint nothing can be resumed       ended with an exception
finished      model.ggmflow, edges.csv, README.txt                          is complete

action        from                                        to                caused by
begin         (the record of an earlier fit is replaced)   starting          a new fit
train         starting, running, interrupted, failed      running           a new fit, or one that is resumed
interrupt     running                                     interrupted       Ctrl-C, SIGTERM
fail          running                                     failed            numbers that are not finite, lack of memory
finish        running                                     finished          the end of the fit

An interruption or a failure in another status leaves it as it is.

fit in the directory                 `fit`       `fit --resume`     `fit --force`
none                                 begin       begin              begin
starting                             refuse      begin              begin
running, interrupted                 refuse      train              begin
failed, with a checkpoint            refuse      train              begin
failed, without a checkpoint         begin       begin              begin
finished                             refuse      load               begin
"""

from enum import Enum, StrEnum


class Status(StrEnum):
    """Status of a fit, as run.json states it."""

    STARTING = "starting"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    FINISHED = "finished"


class Action(Enum):
    """An event that changes the status of a fit."""

    BEGIN = "begin"
    TRAIN = "train"
    INTERRUPT = "interrupt"
    FAIL = "fail"
    FINISH = "finish"


_RESUMABLE = (Status.STARTING, Status.RUNNING, Status.INTERRUPTED, Status.FAILED)
_OTHERS = tuple(status for status in Status if status is not Status.RUNNING)
# None: a new fit, without a record.
TRANSITIONS: dict[tuple[Status | None, Action], Status] = {
    (None, Action.BEGIN): Status.STARTING,
    **{(status, Action.TRAIN): Status.RUNNING for status in _RESUMABLE},
    (Status.RUNNING, Action.INTERRUPT): Status.INTERRUPTED,
    (Status.RUNNING, Action.FAIL): Status.FAILED,
    (Status.RUNNING, Action.FINISH): Status.FINISHED,
    **{(status, action): status for status in _OTHERS for action in (Action.INTERRUPT, Action.FAIL)},
}


class Start(Enum):
    """How a fit that a user asks for starts."""

    BEGIN = "begin"
    TRAIN = "train"
    LOAD = "load"
    REFUSE = "refuse"


def how_to_start(status: Status | None, *, has_checkpoint: bool, resume: bool, force: bool) -> Start:
    """How a fit that a user asks for starts: the last table above.

    Parameters
    ----------
    status
        Status of the fit in the directory; None if there is none.
    has_checkpoint
        Whether that fit left a checkpoint.
    resume, force
        As the user asked.
    """
    if force or status is None or (status is Status.FAILED and not has_checkpoint):
        return Start.BEGIN
    if not resume:
        return Start.REFUSE
    match status:
        case Status.STARTING:
            return Start.BEGIN
        case Status.FINISHED:
            return Start.LOAD
        case _:
            return Start.TRAIN
