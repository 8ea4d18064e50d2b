"""The dependencies of a plan as a drawing: a column for each phase, a box for each task, a line for each dependency."""

from __future__ import annotations

from dataclasses import dataclass

from rookery_client.generated import models

MAX_DRAWN_TASKS = 500
"""A plan with more tasks is not drawn; its dependencies are listed."""

MAX_DRAWN_EDGES = 800
"""Dependencies in a drawing or a list."""

MAX_LISTED_NODES = 500
BOX_WIDTH, BOX_HEIGHT = 240, 30
COLUMN_WIDTH, ROW_HEIGHT = 320, 42
_MARGIN = 24
_LABEL_CHARS = 32
_NAME_CHARS = 50


@dataclass(frozen=True, slots=True)
class Box:
    """A phase or a task in the drawing, from its upper left corner, in pixels."""

    node: models.Node
    x: int
    y: int
    label: str
    state: str


@dataclass(frozen=True, slots=True)
class Line:
    """A dependency in the drawing, as the data of an SVG path."""

    source: str
    target: str
    path: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A layered layout of a dependency graph. Its size is in pixels."""

    boxes: list[Box]
    lines: list[Line]
    width: int
    height: int
    omitted_lines: int


@dataclass(frozen=True, slots=True)
class Dependency:
    """A phase or a task, and the numbers in the list of what must be done before it."""

    number: int
    node: models.Node
    name: str
    state: str
    after: list[int]


def draw_graph(graph: models.Graph) -> Drawing | None:
    """Return the layout of *graph*; None if it has more than `MAX_DRAWN_TASKS` tasks or nothing to draw."""
    phases = [node for node in graph.nodes if node.kind == "phase"]
    tasks = [node for node in graph.nodes if node.kind == "task"]
    if not phases or len(tasks) > MAX_DRAWN_TASKS:
        return None
    edges = _unique_edges(graph)
    # Lines between phases run above the first row, higher the further they go.
    arc_heights = [_arc_height(phases, source, target) for source, target in edges]
    top = _MARGIN + max(arc_heights, default=0)
    columns = {phase.id: index for index, phase in enumerate(phases)}
    rows = dict.fromkeys(columns, 0)
    states = _read_states(graph)
    boxes = list[Box]()
    for node in (*phases, *tasks):
        phase_id = node.phase_id or node.id
        boxes.append(
            Box(
                node,
                _MARGIN + columns[phase_id] * COLUMN_WIDTH,
                top + rows[phase_id] * ROW_HEIGHT,
                _cut(node.name, _LABEL_CHARS),
                states[node.id],
            )
        )
        rows[phase_id] += 1
    by_id = {box.node.id: box for box in boxes}
    drawn_edges = edges[:MAX_DRAWN_EDGES]
    lines = [Line(source, target, _draw_line(by_id[source], by_id[target])) for source, target in drawn_edges]
    width = 2 * _MARGIN + (len(phases) - 1) * COLUMN_WIDTH + BOX_WIDTH
    height = top + max(rows.values()) * ROW_HEIGHT + _MARGIN
    return Drawing(boxes, lines, width, height, len(edges) - len(drawn_edges))


def list_dependencies(graph: models.Graph) -> list[Dependency]:
    """Return the first `MAX_LISTED_NODES` phases and tasks with what they wait for, as the text of the drawing."""
    numbers = {node.id: number for number, node in enumerate(graph.nodes, 1)}
    after: dict[str, list[int]] = {}
    for source, target in _unique_edges(graph)[:MAX_DRAWN_EDGES]:
        after.setdefault(target, []).append(numbers[source])
    states = _read_states(graph)
    return [
        Dependency(numbers[node.id], node, _cut(node.name, _NAME_CHARS), states[node.id], sorted(after.get(node.id, ())))
        for node in graph.nodes[:MAX_LISTED_NODES]
    ]


def _unique_edges(graph: models.Graph) -> list[tuple[str, str]]:
    node_ids = {node.id for node in graph.nodes}
    pairs = dict.fromkeys((edge.source, edge.target) for edge in graph.edges)
    return [(source, target) for source, target in pairs if source in node_ids and target in node_ids]


def _read_states(graph: models.Graph) -> dict[str, str]:
    """Return the state of each node: its status, but ready or blocked while it is pending."""
    states = {node.id: node.status for node in graph.nodes}
    pending = {node_id for node_id, status in states.items() if status == "pending"}
    states.update((node_id, "ready") for node_id in pending.intersection(graph.ready))
    states.update((entry.id, "blocked") for entry in graph.blocked if entry.id in pending)
    return states


def _arc_height(phases: list[models.Node], source: str, target: str) -> int:
    places = {phase.id: index for index, phase in enumerate(phases)}
    return 12 + 6 * abs(places[source] - places[target]) if source in places and target in places else 0


def _draw_line(source: Box, target: Box) -> str:
    """Return a curve from *source* to *target*: over the phases, beside a column, or from one column to another."""
    if source.node.kind == target.node.kind == "phase":
        start, end = source.x + BOX_WIDTH * 3 // 4, target.x + BOX_WIDTH // 4
        # The highest point of a cubic curve is at three quarters of its control points.
        height = source.y - (12 + 6 * abs(source.x - target.x) // COLUMN_WIDTH) * 4 // 3
        return f"M{start} {source.y}C{start} {height} {end} {height} {end} {target.y}"
    start_y, end_y = source.y + BOX_HEIGHT // 2, target.y + BOX_HEIGHT // 2
    if source.x == target.x:
        side = source.x - 18
        return f"M{source.x} {start_y}C{side} {start_y} {side} {end_y} {target.x} {end_y}"
    start_x, end_x = (source.x + BOX_WIDTH, target.x) if source.x < target.x else (source.x, target.x + BOX_WIDTH)
    middle = (start_x + end_x) // 2
    return f"M{start_x} {start_y}C{middle} {start_y} {middle} {end_y} {end_x} {end_y}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
