"""From a recorded pass to the compact graph: absorb, contract, keep.

Every recorded step is one of three things. A *constant* depends on nothing that matters. A
*weight expression* depends on parameters only (a transpose, a weight norm, a sum of low-rank
factors): it is absorbed, its parameters go to the operator that uses it. A *data* step depends on
an input, or is a layer applied to a constant (a position embedding): it becomes a node if it has
parameters, pools, or joins two different sources, and otherwise stands for its only source.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from graphs import ops
from graphs.graph import Node, Role, Shape
from graphs.kinds import layer_role, layer_type, pool_type, weight_positions
from graphs.record import Step

_MAX_LOOK_BACK = 12  # steps between the square root of a hand-written norm and its scale


@dataclass
class Draft:
    """A node in the making."""

    op: str
    roles: dict[str, Role] = field(default_factory=dict)
    shape: Shape | None = None
    module: str | None = None
    attributes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Compact:
    """The result: nodes and edges, without orphans, and the functions that got no type."""

    nodes: list[Node]
    edges: list[tuple[int, int]]
    other: dict[str, int]


def simplify(steps: list[Step], outputs: list[int], side_outputs: list[int]) -> Compact:
    """The compact graph of a recorded pass; node 0 is the input."""
    live, as_weight = _use(steps, outputs + side_outputs)
    build = _Builder(steps, as_weight)
    for index in live:
        build.visit(index)
    ends = [build.as_data(i) for i in outputs]
    for i in side_outputs:
        build.as_data(i)
    build.mark_classifiers([e for e in ends if e >= 0])
    return build.finish()


def _use(steps: list[Step], outputs: list[int]) -> tuple[list[int], list[bool]]:
    """The steps that lead to an output, in order; and which of them are (part of) a weight."""
    live = [False] * len(steps)
    as_weight = [False] * len(steps)
    for i in outputs:
        if i >= 0:
            live[i] = True
    for i in range(len(steps) - 1, -1, -1):
        if not live[i]:
            continue
        step = steps[i]
        positions = weight_positions(step) if step.name in ops.LAYERS else ()
        for key, source in step.inputs:
            if source < 0:
                continue
            live[source] = True
            if as_weight[i] or key in positions:
                as_weight[source] = True
    return [i for i, used in enumerate(live) if used], as_weight


class _Builder:
    """Visits the live steps in order and knows, of each, what it stands for."""

    def __init__(self, steps: list[Step], as_weight: list[bool]) -> None:
        self.steps = steps
        self.as_weight = as_weight
        self.node: dict[int, int] = {}  # data step -> node it stands for
        self.weights: dict[int, tuple[str, ...]] = {}  # weight expression -> its parameters
        self.drafts: list[Draft] = [Draft("input")]
        self.sources: list[list[int]] = [[]]
        self.makers: list[int] = [-1]  # node -> step that made it
        self.shapes: dict[str, Shape] = {}
        self.other: Counter[str] = Counter()

    def visit(self, index: int) -> None:
        step = self.steps[index]
        if step.kind == "call_function":
            self._visit_call(index, step)
        elif step.kind == "get_attr":
            self.weights[index] = (step.target,)
            self.shapes[step.target] = step.shape or ()
        elif step.kind == "placeholder":
            self.node[index] = 0
            if self.drafts[0].shape is None:
                self.drafts[0].shape = step.shape

    def as_data(self, index: int) -> int:
        """The node a step stands for; a weight used as data becomes a source of its own."""
        found = self.node.get(index, -1)
        if found < 0 and index in self.weights:
            step = self.steps[index]
            roles = dict.fromkeys(self.weights[index], Role.STANDALONE)
            found = self._add(index, Draft("parameter", roles, step.shape), [])
            self.node[index] = found
        return found

    def _visit_call(self, index: int, step: Step) -> None:
        name = step.name
        data: list[int] = []
        weighted: list[tuple[int | str, int]] = []
        for pair in step.inputs:
            if pair[1] in self.weights:
                weighted.append(pair)
            elif pair[1] in self.node:
                data.append(self.node[pair[1]])
        if name in ops.SHAPE_ONLY:
            # Another tensor only lends its shape or type: nothing flows from it.
            data, weighted = data[: ops.SHAPE_ONLY[name]], weighted[: ops.SHAPE_ONLY[name]]
        layer = ops.LAYERS.get(name)
        in_weight = self.as_weight[index] and not data and layer in ops.NORMS
        if layer and weighted and not in_weight:
            positions = weight_positions(step)
            # A parameter in the place of the data (learned queries) is a source, not a weight.
            data += [self.as_data(i) for key, i in weighted if key not in positions]
            weighted = [(key, i) for key, i in weighted if key in positions]
        elif not data:
            if weighted:
                self.weights[index] = tuple(
                    dict.fromkeys(n for _, i in weighted for n in self.weights[i])
                )
            return
        sources = sorted(set(data))
        if weighted and not self._is_late_bias(index, step, name, weighted, sources):
            self.node[index] = self._add(index, self._layer(step, name, weighted), sources)
        elif not weighted and (len(sources) > 1 or name in ops.POOLS):
            draft = self._join_or_pool(step, name, len(sources))
            self.node[index] = self._add(index, draft, sources) if draft else sources[0]
        else:
            self.node[index] = sources[0] if sources else -1

    def _add(self, index: int, draft: Draft, sources: list[int]) -> int:
        self.makers.append(index)
        self.drafts.append(draft)
        self.sources.append(sources)
        return len(self.drafts) - 1

    # --- what kind of node ---------------------------------------------------------------------

    def _layer(self, step: Step, name: str, weighted: list[tuple[int | str, int]]) -> Draft:
        positions = weight_positions(step)
        op, attributes = layer_type(step, name)
        draft = Draft(op, shape=step.shape, module=step.module, attributes=attributes)
        for key, i in sorted(weighted, key=lambda pair: "bias" in positions.get(pair[0], "")):
            for parameter in self.weights[i]:
                role = layer_role(op, positions.get(key), len(self.shapes[parameter]))
                draft.roles.setdefault(parameter, role)
        if op != "":
            return draft
        if name in ops.PRODUCTS:
            self._describe_product(draft, step, name, weighted)
        elif name in ops.JOINS:
            draft.op = ops.JOINS[name][1]
            if draft.op == "scale" and (norm := self._hand_written_norm(step)):
                draft.op = norm
                draft.roles = dict.fromkeys(draft.roles, Role.NORM_SCALE)
        else:
            draft.op = "other"
            self.other[name] += 1
        return draft

    def _describe_product(
        self, draft: Draft, step: Step, name: str, weighted: list[tuple[int | str, int]]
    ) -> None:
        draft.op = "matmul"
        for key, i in weighted:
            for parameter in self.weights[i]:
                dimensions = len(self.shapes[parameter])
                if name in ("addmm", "baddbmm", "addmv") and key == 0:
                    draft.roles[parameter] = Role.BIAS
                elif dimensions >= 2:
                    draft.roles[parameter] = Role.WEIGHT
                if dimensions == 2 and name != "einsum" and draft.roles[parameter] is Role.WEIGHT:
                    draft.op = "linear"
                    if self.steps[i].kind == "get_attr" and key != 0:
                        draft.attributes["transposed"] = 1
        ordered = sorted(draft.roles, key=lambda n: draft.roles[n] is Role.BIAS)
        draft.roles = {n: draft.roles[n] for n in ordered}

    def _join_or_pool(self, step: Step, name: str, num_sources: int) -> Draft | None:
        draft = Draft("other", shape=step.shape, module=step.module)
        if name in ops.POOLS:
            pool = pool_type(step, name)
            if pool is None and num_sources < 2:
                return None
            draft.op = pool or "other"
        elif name in ops.PRODUCTS:
            draft.op = "matmul"
        elif name in ops.JOINS:
            draft.op = ops.JOINS[name][0]
        elif ops.LAYERS.get(name) in ops.CONVOLUTIONS or name in ops.LAYERS:
            draft.op = "matmul"  # a layer whose weights another layer computed
        if draft.op == "other":
            self.other[name] += 1
        return draft

    def _is_late_bias(
        self,
        index: int,
        step: Step,
        name: str,
        weighted: list[tuple[int | str, int]],
        sources: list[int],
    ) -> bool:
        """True when a vector is added right after a product or a norm: it is that node's bias."""
        if name != "add" or len(sources) != 1 or len(weighted) != 1:
            return False
        names = self.weights[weighted[0][1]]
        before = [i for _, i in step.inputs if i not in self.weights and i in self.node]
        draft = self.drafts[sources[0]]
        if len(names) != 1 or len(before) != 1 or len(self.shapes[names[0]]) != 1:
            return False
        if before[0] != self.makers[sources[0]]:
            return False
        is_norm = draft.op in ops.NORMS
        if not (is_norm or draft.op in ("linear", "matmul")) or len(draft.roles) != 1:
            return False
        draft.roles[names[0]] = Role.NORM_BIAS if is_norm else Role.BIAS
        self.node[index] = sources[0]
        return True

    def _hand_written_norm(self, step: Step) -> str | None:
        """The norm whose scale this product applies, told by the square root it divides by."""
        todo = [i for _, i in step.inputs if i in self.node and i not in self.weights]
        if not todo:
            return None
        source = self.node[todo[0]]
        names = set()
        for _ in range(_MAX_LOOK_BACK):
            # Only what lies between the source and this step: contracted, so it stands for it.
            todo = [i for i in todo if self.node[i] == source and i != self.makers[source]]
            if not todo:
                break
            before = self.steps[todo.pop(0)]
            if before.kind == "call_function":
                names.add(before.name)
                todo += [k for _, k in before.inputs if k in self.node and k not in self.weights]
        if not names & {"rsqrt", "sqrt", "std", "norm", "linalg_vector_norm", "vector_norm"}:
            return None
        return "layer_norm" if "sub" in names else "rms_norm"

    # --- the end -------------------------------------------------------------------------------

    def mark_classifiers(self, ends: list[int]) -> None:
        """Give the last layers before the outputs their role, by structure alone.

        Walks back from the outputs to the first nodes with weights. Of these, the ones that
        another of them depends on (around it goes a skip connection) are not the last.
        """
        stops = []
        todo, seen = list(ends), set(ends)
        while todo:
            here = todo.pop()
            draft = self.drafts[here]
            if draft.roles and draft.op not in ("shift", "scale"):
                stops.append(here)
            else:
                todo += _unseen(self.sources[here], seen)
        todo, earlier = [s for stop in stops for s in self.sources[stop]], set[int]()
        while todo:
            here = todo.pop()
            if here not in earlier:
                earlier.add(here)
                todo += self.sources[here]
        for stop in stops:
            draft = self.drafts[stop]
            if draft.op in ops.HEADS and stop not in earlier:
                draft.roles = {n: _CLASSIFIER.get(r, r) for n, r in draft.roles.items()}

    def finish(self) -> Compact:
        nodes = []
        for draft in self.drafts:
            first = next(iter(draft.roles), None)
            module = first.rpartition(".")[0] if first else draft.module
            nodes.append(
                Node(
                    op=draft.op,
                    parameters={n: self.shapes[n] for n in draft.roles},
                    roles=draft.roles,
                    shape=draft.shape,
                    module=module or "",
                    attributes=draft.attributes,
                )
            )
        edges = [(u, v) for v, sources in enumerate(self.sources) for u in sources if u >= 0]
        return Compact(nodes, sorted(edges), dict(self.other))


def _unseen(nodes: list[int], seen: set[int]) -> list[int]:
    new = [n for n in nodes if n >= 0 and n not in seen]
    seen.update(new)
    return new


_CLASSIFIER = {Role.WEIGHT: Role.CLASSIFIER, Role.BIAS: Role.CLASSIFIER_BIAS}
