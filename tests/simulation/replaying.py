"""
One history again: of a plan, the history that its profile is about.
"""

import gc
import traceback

from tests.simulation.history import History
from tests.simulation.log_history import LogHistory
from tests.simulation.messages_history import MessageHistory
from tests.simulation.mirrors_history import MirrorHistory
from tests.simulation.partitions_history import PartitionHistory
from tests.simulation.plan import Plan, Profile
from tests.simulation.truth import Violation

COLLECT_EVERY = 20  # histories


def kind_of(profile: Profile) -> type[History]:
    """Which histories a profile has."""
    if profile.partitioned:
        return PartitionHistory
    if profile.mirrors:
        return MirrorHistory
    return MessageHistory if profile.messages else LogHistory if profile.logs else History


def replay(plan: Plan, trace: bool = False) -> tuple[History, Violation | None]:
    """Runs one history; what it broke, if anything."""
    if plan.seed % COLLECT_EVERY == 0:
        # what is left of dead processes goes between two histories, and says so into a log that the next one clears
        gc.collect()
    gc.disable()
    try:
        history = kind_of(plan.profile)(plan, trace)
        try:
            history.run()
        except Violation as violation:
            return history, violation
        except Exception:
            return history, Violation("no bug", traceback.format_exc()[-1500:])
        return history, None
    finally:
        gc.enable()
