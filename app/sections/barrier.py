"""The Barrier page at rest, from top to bottom."""

from app.charts.barriers import What
from app.controls.barrier import Line, Spot
from app.sections import curves, line, planes
from engine.questions import Barrier
from engine.records import BarrierReport


def whole(question: Barrier, report: BarrierReport, both: Line, what: What, spot: Spot) -> None:
    """The line, what stands on it, what else was asked of it, and what to take away."""
    curves.pictures(report, what, spot.t)
    commands = line.texts(question, report, both, spot)
    commands += line.merge(question, spot)
    commands += line.ablation(question, report)
    commands += line.gauges(question, spot)
    files, told = planes.plane(question, report, spot)
    more, tried = planes.orders(question, both)
    curves.theory()
    commands += [*told, *tried]
    curves.take_away(question, report, what, spot.t, ([*files, *more], commands))
