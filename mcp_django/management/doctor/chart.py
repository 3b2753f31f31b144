"""What was found at each step of one host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["ok", "failed", "warned", "skipped"]
MARKS: dict[str, str] = {"ok": "✓", "failed": "✗", "warned": "!", "skipped": "-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: what was found, and for one that is not well the way to mend it."""

    name: str
    verdict: Verdict
    found: str
    fix: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The step as JSON has it."""
        fix = {"fix": self.fix} if self.fix else {}
        return {"step": self.name, "verdict": self.verdict, "found": self.found, **fix}


@dataclass(slots=True, kw_only=True)
class Chart:
    """The steps of one host in their order, or those that concern every host."""

    slug: str
    title: str
    steps: list[Step] = field(default_factory=list)

    def ok(self, name: str, found: str) -> None:
        """Note a step that went well."""
        self.steps.append(Step(name=name, verdict="ok", found=found))

    def failed(self, name: str, found: str, fix: str) -> None:
        """Note a step that a host does not get past."""
        self.steps.append(Step(name=name, verdict="failed", found=found, fix=fix))

    def warned(self, name: str, found: str, fix: str) -> None:
        """Note what some clients stumble over."""
        self.steps.append(Step(name=name, verdict="warned", found=found, fix=fix))

    def skipped(self, name: str, found: str) -> None:
        """Note a step that was not tried, and why."""
        self.steps.append(Step(name=name, verdict="skipped", found=found))

    @property
    def is_well(self) -> bool:
        """Whether no step failed."""
        return all(step.verdict != "failed" for step in self.steps)
