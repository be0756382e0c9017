"""The selectors once more, as plain as can be: the probability of every item."""

import math


class Naive:
    """Items in order of insertion; `probs` gives the probability of each key."""

    def __init__(self):
        self.items = {}  # key -> ids of its steps, as bytes

    def insert(self, key, stepids):
        self.items[key] = [bytes(x) for x in stepids]

    def remove(self, key):
        del self.items[key]

    def prioritize(self, stepids, priorities):
        pass

    def sampled(self, key):
        pass

    def weights(self):
        return {key: 1.0 for key in self.items}

    def probs(self):
        """Probabilities of all keys: infinite weights first, and all alike if all are 0."""
        weights = self.weights()
        if any(x == math.inf for x in weights.values()):
            weights = {key: float(x == math.inf) for key, x in weights.items()}
        elif not any(weights.values()):
            weights = {key: 1.0 for key in weights}
        total = math.fsum(weights.values())
        return {key: x / total for key, x in weights.items()}


class NaiveRecency(Naive):
    def __init__(self, exponent):
        super().__init__()
        self.exponent = exponent

    def weights(self):
        keys = list(self.items)
        return {key: (len(keys) - i) ** -self.exponent for i, key in enumerate(keys)}


class NaivePrioritized(Naive):
    """Priorities by the id of the step, for the steps that are part of an item."""

    def __init__(self, exponent, initial, zero_on_sample, maxfrac):
        super().__init__()
        self.exponent = exponent
        self.initial = initial
        self.zero_on_sample = zero_on_sample
        self.maxfrac = maxfrac
        self.priorities = {}

    def insert(self, key, stepids):
        super().insert(key, stepids)
        for step in self.items[key]:
            self.priorities.setdefault(step, self.initial)

    def remove(self, key):
        super().remove(key)
        used = {step for steps in self.items.values() for step in steps}
        self.priorities = {k: v for k, v in self.priorities.items() if k in used}

    def prioritize(self, stepids, priorities):
        for step, priority in zip(stepids, priorities, strict=True):
            if bytes(step) in self.priorities:
                self.priorities[bytes(step)] = float(priority)

    def sampled(self, key):
        if self.zero_on_sample:
            for step in self.items[key]:
                self.priorities[step] = 0.0

    def weights(self):
        return {key: self.weight(steps) for key, steps in self.items.items()}

    def weight(self, steps):
        values = [self.priorities[step] ** self.exponent for step in steps]
        if math.inf in values:
            return math.inf
        mean = math.fsum(values) / len(values)
        return self.maxfrac * max(values) + (1 - self.maxfrac) * mean


class NaiveMixture(Naive):
    def __init__(self, parts, fractions):
        super().__init__()
        self.parts = parts
        self.fractions = fractions

    def insert(self, key, stepids):
        super().insert(key, stepids)
        for part in self.parts:
            part.insert(key, stepids)

    def remove(self, key):
        super().remove(key)
        for part in self.parts:
            part.remove(key)

    def prioritize(self, stepids, priorities):
        for part in self.parts:
            part.prioritize(stepids, priorities)

    def probs(self):
        total = dict.fromkeys(self.items, 0.0)
        for part, fraction in zip(self.parts, self.fractions, strict=True):
            for key, prob in part.probs().items():
                total[key] += fraction * prob
        return total
