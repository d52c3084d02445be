"""The limits of control groups: both versions, nested groups, and the views that containers have of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from requant_service.runtime.cgroup import Cgroups, available_cpus, available_memory

UNLIMITED = str((1 << 63) - 4096)
V2 = "30 23 0:26 {part} {point} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
MEMORY = "35 23 0:31 {part} {point} rw,nosuid master:9 - cgroup cgroup rw,memory"
CPU = "36 23 0:32 {part} {point} rw,nosuid - cgroup cgroup rw,cpu,cpuacct"

Files = dict[str, str]


def made(tmp_path: Path, groups: list[str], mounts: list[str], files: Files) -> Cgroups:
    """Lay out a process's view of /proc and of the cgroup file systems."""
    proc, root = tmp_path / "proc", tmp_path / "root"
    proc.mkdir()
    proc.joinpath("cgroup").write_text("".join(f"{line}\n" for line in groups))
    proc.joinpath("mountinfo").write_text(
        "".join(f"{line}\n" for line in ["1 0 8:1 / / rw - ext4 /dev/sda rw", *mounts])
    )
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return Cgroups(proc, root)


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "cpus", "memory"),
    [
        pytest.param(
            ["0::/"],
            [V2.format(part="/", point="/sys/fs/cgroup")],
            {"sys/fs/cgroup/cpu.max": "150000 100000", "sys/fs/cgroup/memory.max": "2147483648"},
            1.5,
            2 << 30,
            id="v2, a namespace of its own",
        ),
        pytest.param(
            ["0::/a/b"],
            [V2.format(part="/", point="/sys/fs/cgroup")],
            {
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000",
                "sys/fs/cgroup/a/b/memory.max": "max",
                "sys/fs/cgroup/a/cpu.max": "200000 100000",
                "sys/fs/cgroup/a/memory.max": "1000000",
            },
            2.0,
            1_000_000,
            id="v2, the host's hierarchy, limits of the parent",
        ),
        pytest.param(
            ["0::/"],
            [V2.format(part="/", point="/sys/fs/cgroup")],
            {"sys/fs/cgroup/cpu.max": "max 100000", "sys/fs/cgroup/memory.max": "max"},
            None,
            None,
            id="v2, no limit",
        ),
        pytest.param(
            ["12:memory:/docker/c1", "4:cpu,cpuacct:/docker/c1", "0::/system.slice/docker.service"],
            [
                MEMORY.format(part="/docker/c1", point="/sys/fs/cgroup/memory"),
                CPU.format(part="/docker/c1", point="/sys/fs/cgroup/cpu,cpuacct"),
            ],
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            0.5,
            2 << 30,
            id="v1, only the container's own group is mounted",
        ),
        pytest.param(
            ["12:memory:/kubepods/pod/c1", "4:cpu,cpuacct:/kubepods/pod/c1"],
            [
                MEMORY.format(part="/", point="/host/cgroup\\040v1/memory"),
                CPU.format(part="/", point="/host/cgroup\\040v1/cpu"),
            ],
            {
                "host/cgroup v1/memory/kubepods/pod/c1/memory.limit_in_bytes": UNLIMITED,
                "host/cgroup v1/memory/kubepods/pod/memory.limit_in_bytes": "3000000",
                "host/cgroup v1/memory/memory.limit_in_bytes": UNLIMITED,
                "host/cgroup v1/cpu/kubepods/pod/c1/cpu.cfs_quota_us": "-1",
                "host/cgroup v1/cpu/kubepods/pod/cpu.cfs_quota_us": "300000",
                "host/cgroup v1/cpu/kubepods/pod/cpu.cfs_period_us": "100000",
            },
            3.0,
            3_000_000,
            id="v1, the host's hierarchy, a blank in the mount point",
        ),
        pytest.param(
            ["12:memory:/docker/c1"],
            [MEMORY.format(part="/docker/c1", point="/sys/fs/cgroup/memory")],
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": UNLIMITED,
                "sys/fs/cgroup/memory/memory.stat": "cache 0\nhierarchical_memory_limit 4000000\ntotal_rss 1",
            },
            None,
            4_000_000,
            id="v1, the limit of a parent that is not mounted",
        ),
        pytest.param(
            ["9:memory:/docker/c1", "1:name=systemd:/docker/c1", "0::/docker/c1"],
            [
                MEMORY.format(part="/", point="/sys/fs/cgroup/memory"),
                V2.format(part="/", point="/sys/fs/cgroup/unified"),
            ],
            {
                "sys/fs/cgroup/memory/docker/c1/memory.limit_in_bytes": "5000000",
                "sys/fs/cgroup/unified/docker/c1/cpu.max": "100000 100000",
            },
            1.0,
            5_000_000,
            id="both versions",
        ),
        pytest.param(
            ["0::/../../other"],
            [V2.format(part="/../..", point="/sys/fs/cgroup")],
            {"sys/fs/cgroup/memory.max": "6000000"},
            None,
            6_000_000,
            id="v2, outside of the namespace",
        ),
        pytest.param(
            ["0::/a"],
            [V2.format(part="/", point="/sys/fs/cgroup")],
            {"sys/fs/cgroup/a/cpu.max": "garbage", "sys/fs/cgroup/a/memory.max": "-", "sys/fs/cgroup/cpu.max": "1 0"},
            None,
            None,
            id="files that make no sense",
        ),
        pytest.param(["x", "0"], ["30 23", " - ", "- - cgroup2"], {}, None, None, id="lines that make no sense"),
    ],
)
def test_the_smallest_limit_counts(
    tmp_path: Path, groups: list[str], mounts: list[str], files: Files, cpus: float | None, memory: int | None
) -> None:
    found = made(tmp_path, groups, mounts, files)
    assert (found.cpus(), found.memory()) == (cpus, memory)


def test_without_proc_there_is_no_limit(tmp_path: Path) -> None:
    found = Cgroups(tmp_path)
    assert (found.cpus(), found.memory()) == (None, None)


@pytest.mark.parametrize(("quota", "expected"), [("1000 100000", 1), ("100000 100000", 1), ("max 100000", None)])
def test_part_of_a_cpu_is_one_thread(tmp_path: Path, quota: str, expected: int | None) -> None:
    mounts = [V2.format(part="/", point="/c")]
    limited = made(tmp_path, ["0::/"], mounts, {"c/cpu.max": quota, "c/memory.max": "123456"})
    assert available_cpus(limited) == (expected or available_cpus(Cgroups(tmp_path)))
    assert available_memory(limited) == 123456 < available_memory(Cgroups(tmp_path))
