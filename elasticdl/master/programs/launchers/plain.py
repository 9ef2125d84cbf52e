"""Programs without a distributed runtime of their own, and those that set one up by `elasticai_api`: no variables."""

from __future__ import annotations

from elasticdl.master.programs.launchers.launcher import Launcher, NodePlace


class PlainLauncher(Launcher):
    def environment(self, place: NodePlace) -> dict[str, str]:
        return {}
