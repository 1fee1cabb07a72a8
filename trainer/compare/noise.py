"""noise.py: median and range of several rounds, and which strategy is better beyond the noise."""
import math
import statistics

ROUNDS = 3  # with fewer, the range says too little about the noise
RULE = (f"The rule for winners: a strategy wins if its worst round is better than the best round of every other one. "
        f"Where ranges overlap there is no difference beyond the noise, and those that overlap with the best median are "
        f"named instead. Fewer than {ROUNDS} rounds do not show the noise, so then there is no winner.")


class Spread:
    """The rounds of one number. None: a round that never reached the goal, which is worse than any number."""

    def __init__(self, rounds, more_is_better=False):
        self.more_is_better = more_is_better
        never = -math.inf if more_is_better else math.inf
        self.rounds = [never if value is None else value for value in rounds]
        self.low, self.high = min(self.rounds), max(self.rounds)
        self.median = statistics.median_low(self.rounds)

    def overlaps(self, other):
        """Whether the two ranges have a number in common."""
        return self.low <= other.high and other.low <= self.high


def best_of(spreads):
    """The names whose range overlaps that of the best median, the best first; empty if none reached the goal.
    spreads: a Spread for each name."""
    names = sorted(spreads, key=lambda name: spreads[name].median * (-1 if spreads[name].more_is_better else 1))
    if not names or not math.isfinite(spreads[names[0]].median):
        return []
    return [name for name in names if spreads[name].overlaps(spreads[names[0]])]


def winner_of(spreads):
    """The one that is best beyond the noise, or None."""
    best = best_of(spreads)
    enough = all(len(spread.rounds) >= ROUNDS for spread in spreads.values())
    return best[0] if enough and len(best) == 1 and len(spreads) > 1 else None
