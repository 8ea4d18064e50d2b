"""The drawing of a plan's dependencies."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from rookery.console.plan_graph import BOX_HEIGHT, BOX_WIDTH, MAX_DRAWN_EDGES, MAX_DRAWN_TASKS, draw_graph, list_dependencies
from rookery_client.generated import models


def build_graph(task_counts: list[int], edges: list[tuple[str, str]]) -> models.Graph:
    """Return a graph with as many tasks in each phase as *task_counts* says. Phases are p0, p1, …, tasks t0, t1, …."""
    nodes = [
        models.Node(id=f"p{index}", kind="phase", name=f"Phase {index}", status="pending", phase_id=None)
        for index in range(len(task_counts))
    ]
    for index, count in enumerate(task_counts):
        for _ in range(count):
            number = len(nodes) - len(task_counts)
            nodes.append(models.Node(id=f"t{number}", kind="task", name=f"Task {number}", status="pending", phase_id=f"p{index}"))
    return models.Graph(
        plan_id="plan", nodes=nodes, edges=[models.Edge(source=source, target=target) for source, target in edges], ready=[], blocked=[]
    )


@st.composite
def graphs(draw: st.DrawFn) -> models.Graph:
    """Graphs without cycles: the server refuses these, so that every edge leads from an earlier node to a later one."""
    counts = draw(st.lists(st.integers(0, 8), min_size=1, max_size=6))
    edges = list[tuple[str, str]]()
    for prefix, count in (("p", len(counts)), ("t", sum(counts))):
        if count > 1:
            pairs = draw(st.lists(st.tuples(st.integers(0, count - 2), st.integers(1, count - 1)), max_size=30))
            edges += [(f"{prefix}{low}", f"{prefix}{high}") for low, high in pairs if low < high]
    return build_graph(counts, edges)


@given(graphs())
def test_boxes_do_not_overlap_and_every_edge_is_drawn_once(graph: models.Graph) -> None:
    """The boxes are apart and inside the drawing, and each dependency is one line that stays inside."""
    drawing = draw_graph(graph)
    assert drawing is not None
    assert {box.node.id for box in drawing.boxes} == {node.id for node in graph.nodes}
    for index, box in enumerate(drawing.boxes):
        assert 0 <= box.x <= drawing.width - BOX_WIDTH
        assert 0 <= box.y <= drawing.height - BOX_HEIGHT
        for other in drawing.boxes[:index]:
            assert abs(box.x - other.x) >= BOX_WIDTH or abs(box.y - other.y) >= BOX_HEIGHT, (box.label, other.label)
    drawn = [(line.source, line.target) for line in drawing.lines]
    assert sorted(drawn) == sorted({(edge.source, edge.target) for edge in graph.edges})
    for line in drawing.lines:
        assert all(int(number) >= 0 for number in re.findall(r"-?\d+", line.path)), line.path


def test_a_column_is_a_phase_and_a_line_runs_between_its_boxes() -> None:
    """Tasks stand below their phase. Lines leave and reach the boxes that they name."""
    drawing = draw_graph(build_graph([2, 1], [("t0", "t1"), ("t1", "t2"), ("p0", "p1")]))
    assert drawing is not None
    boxes = {box.node.id: box for box in drawing.boxes}
    assert boxes["p0"].x == boxes["t0"].x == boxes["t1"].x < boxes["p1"].x == boxes["t2"].x
    assert boxes["p0"].y < boxes["t0"].y < boxes["t1"].y
    crossing = next(line.path for line in drawing.lines if line.target == "t2")
    assert crossing.startswith(f"M{boxes['t1'].x + BOX_WIDTH} {boxes['t1'].y + BOX_HEIGHT // 2}C")
    assert crossing.endswith(f" {boxes['t2'].x} {boxes['t2'].y + BOX_HEIGHT // 2}")


def test_a_large_plan_is_listed_and_not_drawn() -> None:
    """The drawing has a bound of tasks and of lines; the list has the first of both."""
    edges = [(f"t{low}", f"t{low + step}") for low in range(MAX_DRAWN_TASKS - 3) for step in (1, 2)]
    drawing = draw_graph(build_graph([MAX_DRAWN_TASKS], edges))
    assert drawing is not None
    assert (len(drawing.lines), drawing.omitted_lines) == (MAX_DRAWN_EDGES, len(edges) - MAX_DRAWN_EDGES)
    larger = build_graph([MAX_DRAWN_TASKS + 1], edges)
    assert draw_graph(larger) is None
    assert len(list_dependencies(larger)) == MAX_DRAWN_TASKS
    assert draw_graph(build_graph([], [])) is None


def test_the_list_says_what_the_drawing_shows() -> None:
    """Each entry has its state and the numbers of what must be done before it."""
    graph = build_graph([2], [("t0", "t1")])
    graph.ready.append("t0")
    graph.blocked.append(models.Blocked(id="t1", by=["t0"]))
    assert [(entry.number, entry.name, entry.state, entry.after) for entry in list_dependencies(graph)] == [
        (1, "Phase 0", "pending", []),
        (2, "Task 0", "ready", []),
        (3, "Task 1", "blocked", [2]),
    ]
