"""The agent reads the output of the checks' tools; the samples come from their documentation and sources. None was seen on hardware."""

from __future__ import annotations

import json

import pytest

from worker_agent.kube.checks import readings

GPU_A, GPU_B = "GPU-5f1d5c30-7a5e-9d43-8f0c-3f2b1c6d7e80", "GPU-0b9a8c7d-1122-3344-5566-778899aabbcc"
GPUS = f"""{GPU_A}, 00000000:1B:00.0, 31, 4, 0, 0, 3, 12, 0x0000000000000001
{GPU_B}, 00000000:43:00.0, 88, 81000, 2, [N/A], [N/A], [N/A], 0x0000000000000048
"""
KERNEL = """<6>[    4.120000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15
<4>[  100.500000] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
<4>[ 9000.250000] NVRM: Xid (PCI:0000:43:00): 31, pid=4711, name=python, Ch 00000008, intr 00000000. MMU Fault
[ 9100.750000] NVRM: Xid (PCI:0000:43:00): 64, pid='<unknown>', name=<unknown>, row remap failure
"""
PORT = "/sys/class/infiniband/mlx5_{}/ports/1/{}"


def report(*sizes: tuple[int, float, float, float], wrong: float = 0.0) -> bytes:
    """Writes for each size the time out of place and in place in µs, and the bus bandwidth of both in GB/s."""

    def way(time_us: float, bus_bw: float) -> dict[str, float]:
        return {"time": time_us, "alg_bw": bus_bw / 1.75, "bus_bw": bus_bw, "nwrong": wrong}

    results = [
        {
            "size": size,
            "count": size // 4,
            "type": "float",
            "redop": "sum",
            "root": "    -1",
            "out_of_place": way(out_us, bus_bw),
            "in_place": way(in_us, bus_bw - 1),
        }
        for size, out_us, in_us, bus_bw in sizes
    ]
    about = {"version": 2, "start_time": "2026-07-01 12:00:00", "args": ["all_reduce_perf"], "env": ["PATH=/bin"], "nccl_version": 22703}
    end = {"out_of_bounds": {"count": 0, "okay": "true"}, "average_bus_bandwidth": {"bandwidth": 1.0, "okay": "unchecked"}}
    return json.dumps(about | {"results": results} | end).encode()


def test_each_line_of_nvidia_smi_is_a_gpu_and_what_it_does_not_tell_is_unknown() -> None:
    first, second = readings.gpus(GPUS)

    assert (first.uuid, first.temperature_c, first.memory_used_mib, first.ecc_dram_corrected, first.throttles) == (GPU_A, 31, 4, 12, ())
    assert (first.ecc_sram_corrected, second.ecc_sram_corrected) == (3, None)
    assert (second.ecc_uncorrected, second.ecc_sram_uncorrected) == (2, None)
    assert second.throttles == ("hardware slowdown", "hardware thermal")


@pytest.mark.parametrize("text", ["", "No devices were found\n"])
def test_where_there_are_no_gpus_none_is_read(text: str) -> None:
    assert readings.gpus(text) == []


@pytest.mark.parametrize(
    ("pending", "failed", "said"), [("0", "0", (0, 0)), ("1", "0", (1, 0)), ("Yes", "No", (1, 0)), ("No", "Yes", (0, 1))]
)
def test_remapped_rows_are_read_as_numbers_and_as_words(pending: str, failed: str, said: tuple[int, int]) -> None:
    rows = readings.remapped_rows(f"{GPU_A}, 3, {pending}, {failed}\n")[GPU_A]

    assert (rows.uncorrectable, rows.pending, rows.failed) == (3, *said)


def test_a_gpu_without_remapped_rows_tells_nothing_of_them() -> None:
    assert readings.remapped_rows(f"{GPU_A}, [N/A], [N/A], [N/A]\n")[GPU_A] == readings.RemappedRows(
        uncorrectable=None, pending=None, failed=None
    )


def test_processes_are_counted_for_each_gpu() -> None:
    assert readings.processes(f"{GPU_A}, 17\n{GPU_A}, 18\n{GPU_B}, 19\n") == {GPU_A: 2, GPU_B: 1}


def test_xids_of_the_last_two_hours_are_read_with_their_gpu() -> None:
    found = readings.xids(KERNEL, uptime_s=9200.0)

    assert [(xid.bus, xid.number, round(xid.age_s)) for xid in found] == [("0000:43", 31, 200), ("0000:43", 64, 99)]


def test_the_kernel_and_nvidia_smi_mean_the_same_gpu() -> None:
    assert readings.bus_of("00000000:3B:00.0") == readings.bus_of("0000:3b:00") == "0000:3b"


def test_ports_are_read_of_sysfs() -> None:
    files = {
        PORT.format(0, "state"): "4: ACTIVE",
        PORT.format(0, "phys_state"): "5: LinkUp",
        PORT.format(0, "rate"): "400 Gb/sec (4X NDR)",
        PORT.format(0, "gids/0"): "fe80:0000:0000:0000:a088:c203:0012:3456",
        PORT.format(0, "gids/1"): "fe80:0000:0000:0000:a088:c203:0012:3457",
        PORT.format(0, "gids/2"): "0000:0000:0000:0000:0000:ffff:0a00:0105",
        PORT.format(0, "gids/3"): readings.NO_GID,
        PORT.format(1, "gids/0"): "error: [Errno 22] Invalid argument",
        PORT.format(1, "state"): "1: DOWN",
        PORT.format(1, "phys_state"): "3: Disabled",
        PORT.format(1, "rate"): "10 Gb/sec (4X SDR)",
    }

    up, down = readings.ports(files)

    assert (up.name, up.is_up, up.rate_gbps, up.subnets) == ("mlx5_0/1", True, 400.0, ("fe80:0000:0000:0000", readings.IPV4))
    assert (down.name, down.is_up, down.subnets) == ("mlx5_1/1", False, ())


def test_of_nccl_the_latency_is_that_of_the_smallest_size_and_the_bandwidth_that_of_the_largest_the_worse_way() -> None:
    read = readings.nccl(report((17179869184, 62000.0, 62100.0, 472.5), (16, 21.5, 22.25, 0.0)))

    assert (read.latency_us, read.bandwidth_gbs, read.wrong) == (22.25, 471.5, 0.0)


def test_wrong_values_of_all_sizes_count() -> None:
    assert readings.nccl(report((16, 20.0, 20.0, 0.0), (1024, 30.0, 30.0, 1.0), wrong=2.0)).wrong == 8.0


@pytest.mark.parametrize("said", [b"", b"{", b"[]", b'{"results": 1}', report((16, 20.0, 20.0, 0.0)), b'{"results": [{"size": 16}]}'])
def test_a_report_that_is_not_whole_is_refused(said: bytes) -> None:
    with pytest.raises(ValueError, match="report of nccl-tests"):
        readings.nccl(said)


def test_nan_times_of_nccl_are_not_taken_for_numbers() -> None:
    """It writes them as the word "nan"."""
    said = report((16, 20.0, 20.0, 0.0), (1024, 30.0, 30.0, 1.0)).replace(b'"time": 30.0', b'"time": "nan"')

    with pytest.raises(ValueError, match="cannot be read"):
        readings.nccl(said)
