"""Predicted iterations against closed forms: what a link, a core or a period makes of one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans_of import FREE, free_network, manifest_of, profile_of

from relaxc.manifest import BucketPlan, FitPlan
from relaxc.resources import folder
from relaxc.schedule import predict_queue
from relaxc.schedule.cost import exchange_cost
from relaxc.schedule.fit import with_fit
from relaxc.schedule.network import Coding, Line, Network
from relaxc.schedule.predict import Forecast, predict
from relaxc.schedule.predict_machine import Busy, Machine, Mark
from relaxc.schedule.timeline import busy
from relaxc.wire.parameters import Parameter

MILLION = 1_000_000
EACH = 1e-7
"""Seconds a byte: 10 MB/s."""


def near(seconds: float) -> object:
    """But for the census, whose bytes are few."""
    return pytest.approx(seconds, abs=1e-4)


def ran(cores: int, *needs: list[Busy | Mark]) -> Machine:
    machine = Machine(cores)
    for one in needs:
        machine.start(need for need in one)
    machine.run()
    return machine


def test_threads_share_cores_evenly() -> None:
    long, short = Busy(3.0, "compute", "long"), Busy(1.0, "encode", "short")
    ends = {span.label: span.end for span in ran(1, [long], [short]).spans}
    assert ends == {"short": pytest.approx(2.0), "long": pytest.approx(4.0)}
    ends = {span.label: span.end for span in ran(2, [long], [short]).spans}
    assert ends == {"short": pytest.approx(1.0), "long": pytest.approx(3.0)}


def test_a_thread_waits_for_a_mark_without_a_core() -> None:
    machine = Machine(1)
    mark = machine.at(5.0)
    machine.start(need for need in [mark, Busy(1.0, "compute", "late")])
    machine.start(need for need in [Busy(2.0, "encode", "early")])
    machine.run()
    assert {s.label: (s.start, s.end) for s in machine.spans} == {"early": (0.0, 2.0), "late": (5.0, 6.0)}


@pytest.mark.parametrize("workers", [2, 4, 5])
def test_an_all_reduce_sends_two_shares_of_its_bytes(workers: int) -> None:
    profile = profile_of([MILLION], ready=[2.0])
    found = predict(manifest_of("relax gradients"), profile, free_network(EACH), workers)
    wire = 2 * (workers - 1) / workers * 4 * MILLION * EACH
    assert found.iteration == near(3.0 + wire)
    assert found.exposed == near(wire)
    assert found.alone == 3.0


def test_a_line_of_its_own_for_all_reduces_counts() -> None:
    network = replace(free_network(EACH), reduce=Line(0.5, 1e-7))
    found = predict(manifest_of("relax gradients"), profile_of([MILLION], ready=[2.0]), network, 4)
    assert found.iteration == near(3.0 + 0.5 + 0.4)


def test_buckets_that_are_ready_early_leave_early() -> None:
    """The second bucket's gradient comes 1.5 s after the first one's, whose exchange takes 0.8 s at 2 workers."""
    manifest = replace_buckets(manifest_of("relax gradients"), 4 * MILLION)
    profile = profile_of([MILLION, 2 * MILLION], ready=[2.0, 0.5])
    found = predict(manifest, profile, free_network(EACH), 2)
    assert found.iteration == near(3.0 + 0.4)
    assert found.bound == "compute"


def replace_buckets(manifest, size):
    import msgspec

    return msgspec.structs.replace(manifest, first_bucket_bytes=size, bucket_bytes=size)


def test_gradients_that_come_late_wait_for_all_of_backward() -> None:
    manifest = replace_buckets(manifest_of("relax gradients"), 4 * MILLION)
    profile = replace(profile_of([MILLION, 2 * MILLION], ready=[2.0, 0.5]), late_gradients=True)
    assert predict(manifest, profile, free_network(EACH), 2).iteration == near(3.0 + 1.2)


@pytest.mark.parametrize(("each", "longer"), [(1e-7, 3.0), (2e-6, 8.0)])
def test_a_delay_hides_the_shorter_of_exchange_and_computation(each: float, longer: float) -> None:
    found = predict(
        manifest_of("relax gradients { delay = 1 }"), profile_of([MILLION], ready=[2.0]), free_network(each), 2
    )
    assert found.iteration == near(longer)


def test_a_code_is_shorter_by_its_bits() -> None:
    """8 bits and two numbers for each 512 elements, to the other worker and back to it."""
    found = predict(manifest_of("bytegrad"), profile_of([MILLION], ready=[2.0]), free_network(EACH), 2)
    half = MILLION // 2
    payload = 2 * (half + 8 * -(-half // 512))
    assert busy(found.spans, "link") == near(payload * EACH)
    assert found.iteration == pytest.approx(3.0 + payload * EACH, rel=0.01)


def test_what_is_predicted_to_be_sent_is_what_the_schedule_sends() -> None:
    forecast = Forecast(manifest_of("quickstart"), profile_of([MILLION, 100], ready=[2.0, 2.0]), 4)
    found = forecast.over(free_network(EACH))
    messages = sum(int(s.label.split()[0]) for s in found.spans if s.label.endswith(("to 1", "to 2", "to 3")))
    assert messages == sum(piece.sent for piece in forecast.schedule.pieces)


@pytest.mark.parametrize(("each", "longer"), [(1e-7, 3.0), (1e-6, 8.0)])
def test_a_mix_runs_beside_forward_and_backward(each: float, longer: float) -> None:
    """On a ring of 4 the weights go to two neighbours."""
    found = predict(manifest_of("dpsgd"), profile_of([MILLION]), free_network(each), 4)
    assert found.iteration == pytest.approx(longer, rel=1e-3)


def test_weights_are_waited_for_where_a_forward_reads_them() -> None:
    """Two buckets of 8 MB to two neighbours each, 0.4 s: the second one arrives while the first one computes."""
    plain, profile = manifest_of("dpsgd_atc"), profile_of([MILLION, MILLION])
    buckets = tuple(BucketPlan(0, (p.name,), (p.module,)) for p in profile.parameters)
    fitted = with_fit(plain, FitPlan(4, "by hand", (), buckets, 0.0))
    network = free_network(EACH / 2)
    assert predict(plain, profile, network, 4).iteration == near(3.0 + 0.8)
    assert predict(fitted, profile, network, 4).iteration == near(3.0 + 0.4)


def test_times_are_means_over_a_period() -> None:
    found = predict(manifest_of("local_sgd"), profile_of([MILLION]), free_network(EACH), 2)
    assert found.iteration == near(3.0 + 0.4 / 8)
    assert busy(found.spans, "link") == near(0.4)


def test_every_parameter_of_a_staggered_block_is_counted_once() -> None:
    manifest = manifest_of("algorithm s() { step every staggered(4) { weight = mean(weight) } } relax with s")
    found = predict(manifest, profile_of([MILLION] * 4), free_network(EACH), 2)
    assert found.iteration == near(3.0 + 0.4)
    assert busy(found.spans, "link") == near(0.4)


def test_what_is_asynchronous_is_never_waited_for() -> None:
    found = predict(manifest_of("async_average"), profile_of([MILLION]), free_network(1e-5), 4)
    assert found.exposed == near(0.0)


def test_one_core_codes_and_computes_in_turns() -> None:
    """All is encoded, and this worker's half once more as its owner, while backward goes on for a second."""
    text = "relax gradients { compress = bf16 }"
    coding = Coding(Line(0.0, 2e-7), Line(0.0, 0.0))
    costly = Network(Line(0.0, 0.0), codings=_One(coding))
    profile = profile_of([MILLION], ready=[1.0])
    two = predict(manifest_of(text), profile, costly, 2, cores=2)
    one = predict(manifest_of(text), profile, costly, 2, cores=1)
    assert two.iteration == near(3.0)
    assert one.iteration == near(3.0 + 0.3)


def test_carrying_messages_takes_a_core_too() -> None:
    """A late exchange hides behind the computation, but for what it costs the only core: out and in, twice each."""
    manifest, profile = manifest_of("relax gradients { delay = 1 }"), profile_of([MILLION], ready=[2.0])
    network = replace(free_network(EACH), wire=Line(0.0, 2.5e-8))
    assert predict(manifest, profile, network, 2, cores=3).iteration == near(3.0)
    assert predict(manifest, profile, network, 2, cores=1).iteration == near(3.0 + 2 * 0.1)


class _One(dict[str, Coding]):
    """All but plain numbers cost this."""

    def __init__(self, coding: Coding) -> None:
        super().__init__()
        self._coding = coding

    def get(self, name, default=None):
        return Coding(FREE, FREE) if name == "exact" else self._coding


def test_messages_wait_for_the_fixed_part_of_a_line() -> None:
    free, slow = (predict(manifest_of("bytegrad"), profile_of([1000], ready=[2.0]), free_network(0.0, fixed), 2)
                  for fixed in (0.0, 0.25))  # fmt: skip
    # there and back, and the census between the two
    assert slow.iteration - free.iteration == near(0.5)


def test_workers_of_a_machine_share_its_link() -> None:
    mix = manifest_of("algorithm m() { weight = mix(weight, ring) step } relax with m")
    apart = predict(mix, profile_of([MILLION], 0.0, 0.0), free_network(EACH), 8)
    network = replace(free_network(EACH), per_machine=4, inner=Line(0.0, 0.0))
    together = predict(mix, profile_of([MILLION], 0.0, 0.0), network, 8)
    assert apart.iteration == near(0.8)
    assert together.iteration == near(0.4 * 2)  # two of its machine have a neighbour beyond it


def test_of_a_ring_one_worker_of_each_machine_sends_out_of_it() -> None:
    """So what it sends has the link for itself, and the ring takes as long as with a worker on each machine."""
    ring = manifest_of("relax gradients { route = ring }")
    apart = predict(ring, profile_of([MILLION], 0.0, 0.0), free_network(EACH), 8)
    machines = replace(free_network(EACH), per_machine=4, inner=Line(0.0, 0.0))
    together = predict(ring, profile_of([MILLION], 0.0, 0.0), machines, 8)
    assert together.iteration == pytest.approx(apart.iteration, rel=0.01)
    # of the cost that buckets are cut by, too
    exchange = ring.bodies[0].gradient.exchange
    members = [Parameter(0, "p", (MILLION,), "f32")]
    costs = [exchange_cost(exchange, members, 8, network).link for network in (free_network(EACH), machines)]
    assert costs[0] == costs[1] > 0


def test_a_hierarchy_is_of_the_machines_that_the_network_has() -> None:
    """Two machines of four: the sum of a machine leaves it once, not four times over."""
    machines = replace(free_network(EACH), per_machine=4, inner=Line(0.0, 0.0))
    open_, written, plain = (
        predict(manifest_of(f"relax gradients {{ compress = bf16, route = {route} }}"), profile_of([MILLION], 0.0, 0.0),
                machines, 8).iteration
        for route in ("hierarchy", "hierarchy(inner = 4)", "all")
    )  # fmt: skip
    assert open_ == written
    # a code of two bytes goes to the other machine by halves, there and back; by `all` each of four workers sends half
    # of its own, and half of the result, which four share
    assert open_ == pytest.approx(0.2 * EACH * 1e7, rel=0.05)
    assert plain == pytest.approx(4 * open_, rel=0.05)


def test_a_parameter_without_a_gradient_leaves_at_the_end() -> None:
    profile = profile_of([MILLION], ready=[2.0])
    absent = replace(profile, parameters=(replace(profile.parameters[0], ready=None),))
    assert predict(manifest_of("relax gradients"), absent, free_network(EACH), 2).iteration == near(3.4)


def test_alone_there_is_nothing_to_wait_for() -> None:
    for name in ("allreduce", "bytegrad", "dpsgd", "choco"):
        assert predict(manifest_of(name), profile_of([1000]), free_network(EACH), 1).exposed == near(0.0)


LIBRARY = sorted(path.stem for path in folder("specs").glob("*.relax"))


@pytest.mark.parametrize("name", LIBRARY)
def test_every_spec_has_an_iteration_and_lanes_within_it(name: str) -> None:
    found = predict(manifest_of(name), profile_of([5000, 300, 64]), free_network(1e-6, 1e-4), 4, cores=1)
    assert found.iteration >= 3.0 - 1e-6
    assert all(0 <= s.start <= s.end <= found.length + 1e-9 for s in found.spans)


def test_launches_are_told_apart_wherever_they_lie_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address is used again: here all are the same."""
    sizes = [16384, 256, 256, 256, 65536, 256, 2560, 10]
    ready = [0.00539, 0.00537, 0.00528, 0.00529, 0.00521, 0.00519, 0.0003, 0.00029]
    profile = profile_of(sizes, 0.0064, 0.0054, 0.0003, ready)
    cuts = ((7, 6), (5,), (4,), (2, 3, 1), (0,))
    buckets = tuple(BucketPlan(0, tuple(f"p{n}.weight" for n in cut), ()) for cut in cuts)
    fitted = with_fit(manifest_of("relax gradients { compress = 4bit }"), FitPlan(5, "by hand", buckets, (), 0.0))
    network = Network(Line(0.0, 8e-7))
    found = predict(fitted, profile, network, 5, cores=1).iteration
    monkeypatch.setattr(predict_queue, "id", lambda of: 0, raising=False)
    assert predict(fitted, profile, network, 5, cores=1).iteration == found
