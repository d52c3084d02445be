"""Become tritonserver: `.venv-triton/bin/python -m benchmarks.triton.start HTTP_PORT GRPC_PORT REPOSITORY`.

The wheel `nvidia-pytriton` carries the server, with the backend that runs models in Python. REPOSITORY is a folder,
which is filled here with the models.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

_CONFIG = """
backend: "python"
max_batch_size: 0
input [ {{ name: "x", data_type: TYPE_FP32, dims: [ -1 ] }} ]
output [ {{ name: "y", data_type: TYPE_INT8, dims: [ -1 ] }} ]
instance_group [ {{ kind: KIND_CPU, count: {instances} }} ]
"""
# Between server and instance, for each instance: two requests and replies of 64 MB. Its default of 1 MB would grow
# while it is measured.
_SHARED_MEMORY = 256 << 20


def _add_model(repository: Path, name: str, instances: int) -> None:
    version = repository / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").symlink_to(Path(__file__).with_name("model.py"))
    (repository / name / "config.pbtxt").write_text(_CONFIG.format(instances=instances))


def main() -> None:
    """Replace this process by the server."""
    http_port, grpc_port, repository = sys.argv[1:]
    cpus = len(os.sched_getaffinity(0))
    # Each instance is a process. One serves one client fastest; several clients keep several busy.
    _add_model(Path(repository), "quantize", cpus)
    _add_model(Path(repository), "quantize_one_instance", 1)
    packages = Path(sysconfig.get_path("purelib"))
    wheel = packages / "pytriton" / "tritonserver"
    # The backend starts it from its own folder; the wheel has one for each version of Python beside it.
    stub = wheel / "backends" / "python" / "triton_python_backend_stub"
    if not stub.exists():
        # A link to an environment that was moved leads nowhere.
        stub.unlink(missing_ok=True)
        stub.symlink_to(wheel / "python_backend_stubs" / f"3.{sys.version_info.minor}" / stub.name)
    libraries = [sysconfig.get_config_var("LIBDIR"), str(packages.parent / "nvidia_pytriton.libs")]
    environment = os.environ | {
        "LD_LIBRARY_PATH": ":".join(libraries),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    environment.pop("PYTHONPATH", None)
    server = str(wheel / "bin" / "tritonserver")
    arguments = [
        f"--model-repository={repository}",
        f"--backend-directory={wheel / 'backends'}",
        f"--backend-config=python,shm-default-byte-size={_SHARED_MEMORY}",
        "--http-address=127.0.0.1",
        f"--http-port={http_port}",
        f"--http-thread-count={cpus}",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={grpc_port}",
        "--allow-metrics=false",
        "--log-info=false",
        "--exit-timeout-secs=5",
    ]
    os.execve(server, [server, *arguments], environment)


if __name__ == "__main__":
    main()
