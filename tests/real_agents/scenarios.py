"""The runs of a program: one without faults and with a restart, one with refusals, one with an unknown key, one without a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.real_agents.agent_record import AgentRecord, FaultFacts
from tests.real_agents.home_server import PROBE, UNKNOWN_KEY, HomeServer
from tests.real_agents.installation import INSTALLED
from tests.real_agents.launches import Launch, Scene
from tests.real_agents.mcp_recorder import McpRecorder, SeenRequest, record_requests
from tests.real_agents.observations import (
    MEMORY,
    describe_answer,
    find_reason,
    find_remark,
    list_other_requests,
    read_model,
    read_protocol,
)
from tests.real_agents.probe_server import LONG_NAME
from tests.real_agents.program_run import ProgramOutcome, make_home, run_program
from tests.real_agents.scripted_model import Conversation, ScriptedModel, Step

RUN_LIMIT_S = 100.0
"""The time of a run; a program that is still running then is ended."""

LENGTHS = (40_000, 300_000)
_SERVER_ERROR = 500
_RECALL = {"query": "Where does the heron nest?"}


@dataclass(kw_only=True)
class ObservedRun:
    """The end of a run, with the requests and the conversation."""

    outcome: ProgramOutcome
    conversation: Conversation
    requests: Sequence[SeenRequest]
    marks: dict[str, int] = field(default_factory=dict[str, int])


class ProgramRuns:
    """The runs of one program."""

    def __init__(self, id: str, launch: Callable[[Scene], Launch], home: HomeServer, model: ScriptedModel) -> None:
        self.id = id
        self._launch, self._home, self._model = launch, home, model

    def fill(self, row: AgentRecord, *, has_variable: bool) -> None:
        """Run the program in every scenario, and fill its row."""
        start = len(self._home.server.log())
        listed, instructions = self._home.read_list(self._home.create_key(f"{self.id}-list")[1])
        faults = FaultFacts()
        normal = self._run_normal()
        before_restart = normal.requests[: normal.marks.get("restart", len(normal.requests))]
        if not normal.requests:
            row.reason = f"it sent no request: {find_reason(normal.outcome.output)}"
            return
        row.protocol = read_protocol(before_restart)
        ended = [one for one in normal.requests if one.method == "DELETE"]
        if ended and row.protocol.ends_session is False:
            row.protocol.ends_session = True
        row.model = read_model(normal.conversation, listed, instructions)
        row.hooks = dict(normal.outcome.hooks)
        faults.restarted = [describe_answer(normal.conversation, label, normal.outcome) for label in ("after", "again")]
        refused = self._run_refusals()
        faults.limited, faults.relaxed, faults.revoked = (
            describe_answer(refused.conversation, label, refused.outcome) for label in ("limited", "relaxed", "revoked")
        )
        unknown = self._run([Step(label="recall", tool="brain__recall", arguments=_RECALL)], key=UNKNOWN_KEY)
        faults.unknown_key = find_reason(unknown.outcome.output)
        faults.unknown_key_remark = find_remark(unknown.conversation)
        faults.unknown_key_code = unknown.outcome.code
        faults.unknown_key_requests = list_other_requests(unknown.requests)
        runs = [normal, refused, unknown]
        if has_variable:
            unset = self._run([Step(label="recall", tool="brain__recall", arguments=_RECALL)], key="")
            faults.unset = unset.requests[0].authorization if unset.requests else "no request"
            runs.append(unset)
        row.faults = faults
        row.seconds = round(sum(run.outcome.seconds for run in runs), 1)
        failed = {f"{one.label} {one.status}" for run in runs for one in run.requests if one.status >= _SERVER_ERROR}
        row.server_errors = sorted(failed) + [line[:300] for line in self._home.read_errors(start)]

    def _run_normal(self) -> ObservedRun:
        marks = dict[str, int]()

        def restart(recorder: McpRecorder) -> None:
            marks["restart"] = len(recorder.requests)
            self._home.restart()

        def build(recorder: McpRecorder) -> list[Step]:
            return [
                Step(label="remember", tool="brain__remember", arguments={"content": MEMORY}),
                Step(label="recall", tool="brain__recall", arguments=_RECALL),
                Step(label="halves", tool=f"{PROBE}__halves"),
                Step(label="failing", tool=f"{PROBE}__failing"),
                *(Step(label=f"long {size}", tool=f"{PROBE}__long_result", arguments={"characters": size}) for size in LENGTHS),
                Step(label="long-name", tool=f"{PROBE}__{LONG_NAME[:24]}"),
                Step(label="after", tool="brain__recall", arguments=_RECALL, prepare=lambda: restart(recorder)),
                Step(label="again", tool="brain__recall", arguments={"query": "heron on the mill"}),
            ]

        run = self._run(build)
        run.marks = marks
        return run

    def _run_refusals(self) -> ObservedRun:
        key_id, key = self._home.create_key(f"{self.id}-refused")
        return self._run(
            [
                Step(label="first", tool="brain__recall", arguments=_RECALL),
                Step(label="limited", tool="brain__recall", arguments={"query": "heron"}, prepare=lambda: self._home.set_limit(key_id, 1)),
                Step(label="relaxed", tool="brain__recall", arguments=_RECALL, prepare=lambda: self._home.set_limit(key_id, 600)),
                Step(label="revoked", tool="brain__recall", arguments={"query": "mill"}, prepare=lambda: self._home.revoke(key_id)),
            ],
            key=key,
        )

    def _run(self, steps: Sequence[Step] | Callable[[McpRecorder], Sequence[Step]], *, key: str | None = None) -> ObservedRun:
        """Run the program with a script; without *key*, with a new key, and with an empty one, without the variable."""
        secret = self._home.create_key(self.id)[1] if key is None else key
        with record_requests(self._home.port, secret) as recorder, make_home() as (folder, project):
            conversation = Conversation(steps=steps(recorder) if callable(steps) else steps)
            self._model.conversation = conversation
            scene = Scene(installed=INSTALLED, home=folder, project=project, mcp=f"{recorder.url}/mcp", model=self._model.url, key=secret)
            outcome = run_program(self._launch(scene), folder, {"ROOKERY_KEY": secret} if secret else {}, limit_s=RUN_LIMIT_S)
            return ObservedRun(outcome=outcome, conversation=conversation, requests=list(recorder.requests))
