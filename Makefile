# Requant. `make` lists what there is. Everything runs in .venv, which is made from the hash-pinned locks in requirements/.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The sources of the packages `requant` and `requant_service`.
export PYTHONPATH := $(CURDIR)/core:$(CURDIR)/service
# Without bytecode, which is made of what is imported.
INSTALL := bin/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes

# The versions of torch that have a profile.
TORCH := 2.13.0 2.14.1
TORCH_TESTS = $(filter-out tests/interop/checkpoint/%,$(wildcard tests/interop/test_torch*.py tests/interop/*/test_torch*.py)) tests/interop/test_translation.py::TestTorch
# What is compared with the onnxruntime of the profile onnx_1_32; .venv-interop has that of the profile onnx.
ONNXRUNTIME_1_32 := $(VENV)-onnxruntime-1.32
ONNXRUNTIME_TESTS = $(filter-out %/test_onnx_reference.py,$(wildcard tests/interop/test_onnx*.py tests/interop/*/test_onnx*.py)) 'tests/interop/test_errata.py::test_calls_print_what_stands_under_them[onnxruntime-onnxruntime]'

# The environment that also has the libraries that write and load checkpoints.
CHECKPOINTS := $(VENV)-torch-$(lastword $(TORCH))

# On all cores. A file's tests run in one process, and all that measure time do (tests/conftest.py).
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
COMPILE := -m requant.kernels.jit.warmup

.DEFAULT_GOAL := help
.PHONY: help packs wheels kernels environments serve test test-all workers interop conformance live drift generators browser digests arm64 arm64-live image-test docs check format bench openapi proto sbom lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(VENV)/serve.done ## install the dependencies and serve on http://127.0.0.1:8080
	@$(BIN)/python -m requant serve

test: $(VENV)/check.done ## run the fast tests: every rule, on sampled inputs
	@echo "The tests take three to seven minutes on 2 cores; one or two more the first time, and after a change of a kernel."
	@$(BIN)/python $(COMPILE)
	$(BIN)/python -m pytest $(PARALLEL)

test-all: export REQUANT_EXHAUSTIVE := 1
test-all: $(VENV)/check.done ## run all tests on all inputs, the slow ones and the fuzzer with the seed of the day too
	@$(BIN)/python $(COMPILE)
	$(BIN)/python -m pytest $(PARALLEL) -m "not interop and not generators and not clients and not browser and not docs"

kernels: $(VENV)/check.done ## compile all kernels, which the targets that test do first
	@$(BIN)/python $(COMPILE)

workers: export SERVICE_WORKERS := 3
workers: export REQUANT_EXHAUSTIVE := 0
workers: $(VENV)/check.done ## run the tests that start a service with three worker processes
	@$(BIN)/python $(COMPILE)
	$(BIN)/python -m pytest $(PARALLEL) tests/service tests/faces tests/wire tests/hostile

# The environments of the real systems.
LIVE := $(VENV)-interop/done $(ONNXRUNTIME_1_32)/done $(VENV)-workers/done $(VENV)-onednn/done $(TORCH:%=$(VENV)-torch-%/done) $(CHECKPOINTS)/checkpoints.done $(VENV)-tensorflow/done

# The longest installation first. check.done is serve.done too: two installations into one environment would disturb each other.
environments: $(CHECKPOINTS)/checkpoints.done $(LIVE) $(VENV)-generators/done $(VENV)-clients/done $(VENV)-browser/done $(VENV)-docs/done $(VENV)/check.done ## create the environments of all tests; with -j2, two at a time

# What runs in the other environments of the real systems.
INTEROP_TESTS := tests/interop --ignore=tests/interop/clients --ignore=tests/interop/checkpoint --ignore=tests/interop/workers --ignore-glob=tests/interop/test_tensorflow_*.py
CHECKPOINT_TESTS := tests/interop/checkpoint
TENSORFLOW_TESTS = $(wildcard tests/interop/test_tensorflow_*.py) tests/interop/test_fake_quantize.py tests/interop/blind/test_tensorflow.py

# Where the live tests record what they compare.
RECORDS := $(CURDIR)/.conformance

define compiled_systems
tests/interop/llama_cpp/install
tests/interop/schemes/gemmlowp/install
tests/interop/schemes/from_source/install
tests/interop/hardware/install
tests/interop/riscv/install
endef

define live
$(compiled_systems)
@$(VENV)-interop/bin/python $(COMPILE)
$(VENV)-interop/bin/python -m pytest $(PARALLEL) -m interop $(INTEROP_TESTS)
$(OTHER_VERSIONS) $(ONNXRUNTIME_1_32)/bin/python -m pytest $(PARALLEL) -m interop $(ONNXRUNTIME_TESTS)
$(foreach version,$(TORCH),$(if $(filter-out $(lastword $(TORCH)),$(version)),$(OTHER_VERSIONS)) $(VENV)-torch-$(version)/bin/python -m pytest $(PARALLEL) -m interop $(TORCH_TESTS) &&) true
$(CHECKPOINTS)/bin/python -m pytest $(PARALLEL) -m interop $(CHECKPOINT_TESTS)
$(VENV)-tensorflow/bin/python -m pytest -m interop $(TENSORFLOW_TESTS)
endef

# With LIVE_DAYS=6 a sixth of the files runs each day, beside those that are named one by one.
LIVE_DAYS ?= 1
# How long each of its runs of pytest begins tests.
LIVE_MINUTES ?= inf
# Of a system with two profiles one version takes all inputs, the other a sample; `make conformance` gives both all of them.
interop: OTHER_VERSIONS := REQUANT_EXHAUSTIVE=0
interop: export TEST_DAYS := $(LIVE_DAYS)
interop: export TEST_MINUTES := $(LIVE_MINUTES)
interop: export REQUANT_EXHAUSTIVE := 1
interop: export CONFORMANCE_RECORDS := $(RECORDS)
interop: $(LIVE) $(VENV)-clients/done $(VENV)/serve.done ## run the tests against the real systems, and check docs/conformance.md against their comparisons
	@rm -rf $(RECORDS) && mkdir $(RECORDS)
	$(live)
	$(VENV)-workers/bin/python -m pytest -m interop tests/interop/workers
	@# Both clients bring the messages of the protocol, and protobuf takes one of each name in a process.
	SERVER_PYTHON=$(BIN)/python $(VENV)-clients/bin/python -m pytest $(PARALLEL) -m clients tests/interop/clients --ignore=tests/interop/clients/test_kserve.py
	SERVER_PYTHON=$(BIN)/python $(VENV)-clients/bin/python -m pytest -m clients tests/interop/clients/test_kserve.py
	$(BIN)/python -m tests.interop.conformance check $(RECORDS)

MINUTES ?= 0
conformance: export REQUANT_EXHAUSTIVE := 1
conformance: export CONFORMANCE_RECORDS := $(RECORDS)
conformance: $(LIVE) $(VENV)/serve.done ## compare with the real systems for MINUTES=60, with new seeds each round, and write docs/conformance.md
	@rm -rf $(RECORDS) && mkdir $(RECORDS)
	@begun=$$(date +%s) seed=$$(date -u +%Y%m%d); $(MAKE) --no-print-directory live || exit; \
	while [ $$(($$(date +%s) - begun)) -lt $$((60 * $(MINUTES))) ]; do \
		seed=$$((seed + 1)); TEST_SEED=$$seed CONFORMANCE_ROUND=again $(MAKE) --no-print-directory live || exit; \
	done
	$(BIN)/python -m tests.interop.conformance write $(RECORDS)
	$(BIN)/python -m requant_service.profile_pages
	@# The document shows what was compared in its examples.
	$(BIN)/python -m requant_service.openapi

live:
	$(live)

FROM ?=
ONLY ?=
drift: export TORCH := $(TORCH)
drift: export ONNXRUNTIME_TESTS := $(ONNXRUNTIME_TESTS)
drift: export INTEROP_TESTS := $(INTEROP_TESTS) --ignore=tests/interop/onednn
drift: export ONEDNN_TESTS := tests/interop/onednn
drift: export TORCH_TESTS := $(TORCH_TESTS)
drift: export CHECKPOINT_TESTS := $(CHECKPOINT_TESTS)
drift: export TENSORFLOW_TESTS := $(TENSORFLOW_TESTS)
drift: $(VENV)/check.done ## compare with the newest releases of the real systems, and say which bits moved since which
	@$(BIN)/python $(COMPILE)
	$(compiled_systems)
	@$(BIN)/python -m tests.interop.drift --from "$(FROM)" --only "$(ONLY)"

generators: $(VENV)-generators/done ## generate six clients from openapi.json with four generators, compile them, and call the service with them
	openapi/generators/toolchains
	$(VENV)-generators/bin/python -m pytest -m generators tests/generated_clients

browser: $(VENV)-browser/done $(VENV)-clients/done $(VENV)/serve.done ## test the pages in Chromium: features, accessibility, Content-Security-Policy
	tests/browser/install_chromium
	@$(BIN)/python $(COMPILE)
	SERVER_PYTHON=$(BIN)/python CLIENTS_PYTHON=$(VENV)-clients/bin/python $(VENV)-browser/bin/python -m pytest $(PARALLEL) -m browser tests/browser

digests: $(VENV)/check.done ## compare the bits of every conversion on x86-64-v2, v3 and v4, as far as this machine has them
	$(BIN)/python -m tests.digests.levels .digests

arm64: $(VENV)/check.done ## run the kernels of 64-bit ARM, cross-compiled, in QEMU: self-test, some tests, digests beside this machine's
	tests/arm64/install
	@echo "It takes about 10 minutes on 2 cores, 2 of them for the kernels, which are compiled anew after a change of one."
	@$(BIN)/python $(COMPILE)
	$(BIN)/python -m tests.arm64 .arm64

arm64-live: arm64 ## compare operators with onnxruntime and LiteRT for 64-bit ARM, in QEMU, after `make arm64`
	tests/arm64/install_live
	REQUANT_EXHAUSTIVE=0 QEMU_CPU=neoverse-n1 tests/arm64/python -m tests.arm64.live .arm64/kernels neoverse-n1

# Its options: make image-test IMAGE_TEST=--all-levels
IMAGE_TEST ?=
image-test: $(VENV)/check.done ## build the image with buildah, run it with podman within limits, ask it, also under load, and stop it
	$(BIN)/python -m tests.image $(IMAGE_TEST)

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)-docs/done $(VENV)/check.done ## build the documentation site into site/
	$(VENV)-docs/bin/mkdocs build --strict
	$(BIN)/python -m pytest -q -m docs tests/contract/test_docs_site.py
	@echo "Open site/index.html, or, with its search: $(PYTHON) -m http.server -d site -b 127.0.0.1 8000"

check: $(VENV)/check.done ## check formatting, lint, types, openapi.json, the Dockerfile and the manifests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m requant_service.openapi --check
	$(BIN)/hadolint Dockerfile
	$(BIN)/kubernetes-validate --strict --quiet --no-warn deploy/kubernetes/base/[!k]*.yaml deploy/kubernetes/checkpoint-job/[!k]*.yaml deploy/kubernetes/components/*/[!kp]*.yaml deploy/examples/*/kubernetes.yaml

format: $(VENV)/check.done ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)-interop/done $(VENV)-mlserver/done $(VENV)-triton/done $(CHECKPOINTS)/checkpoints.done ## run the benchmarks against other libraries and servers, and write benchmarks/RESULTS.md
	$(VENV)-interop/bin/python -m benchmarks --huge

packs: $(VENV)/check.done ## write test vectors of each profile and scheme into packs/, with test benches in C and Verilog
	$(BIN)/python -m requant.packs packs

# For the Python of .venv. A wheel of each machine has the kernels of each of its CPU levels.
MACHINES ?= x86_64 aarch64
wheels: $(VENV)/check.done ## build wheels that carry compiled kernels into dist/, for Linux on MACHINES="x86_64 aarch64"
	@for machine in $(MACHINES); do \
	  rm -rf build/$$machine && $(BIN)/python -m requant.kernels.jit.bake build/$$machine --machine $$machine && \
	  REQUANT_WHEEL_KERNELS=build/$$machine $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist . \
	  || exit; \
	done

openapi: $(VENV)/serve.done ## write openapi/openapi.json
	$(BIN)/python -m requant_service.openapi

proto: $(VENV)/check.done ## generate the gRPC message code from service/requant_service/oip/grpc/*.proto
	$(BIN)/python -m grpc_tools.protoc -Iservice --python_out=service --pyi_out=service requant_service/oip/grpc/inference.proto
	$(BIN)/python -m grpc_tools.protoc -Iservice --descriptor_set_out=service/requant_service/oip/grpc/grpc_services.binpb \
	  requant_service/oip/grpc/health.proto requant_service/oip/grpc/reflection.proto

sbom: $(VENV)/check.done ## write requant.cdx.json, the software bill of materials of the image (CycloneDX)
	$(BIN)/cyclonedx-py requirements requirements/image.lock --output-reproducible -o requant.cdx.json

lock: $(VENV)/serve.done ## renew the hash-pinned requirements from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile $(UV) pyproject.toml --extra serve --extra mlir -o requirements/serve.lock
	$(BIN)/uv pip compile $(UV) pyproject.toml --extra serve --extra mlir --extra telemetry --extra stores --extra onnx -c requirements/serve.lock -o requirements/image.lock
	$(BIN)/uv pip compile $(UV) pyproject.toml --extra serve --extra mlir --extra telemetry --extra stores --extra onnx --extra packs --group check -c requirements/serve.lock -o requirements/check.lock
	$(BIN)/uv pip compile $(UV) pyproject.toml --extra serve --extra mlir --group interop -c requirements/serve.lock -o requirements/interop.lock
	$(BIN)/uv pip compile $(UV) pyproject.toml --extra serve --extra mlir --group onnxruntime-1-32 -c requirements/serve.lock -o requirements/onnxruntime-1-32.lock
	$(BIN)/uv pip compile $(UV) pyproject.toml --extra serve --extra mlir --extra stores --extra ray --group workers -c requirements/serve.lock -o requirements/workers.lock
	$(BIN)/uv pip compile $(UV) pyproject.toml --extra serve --extra mlir --group generators -c requirements/serve.lock -o requirements/generators.lock
	$(BIN)/uv pip compile $(UV) --group docs -o requirements/docs.lock
	$(BIN)/uv pip compile $(UV) --group onednn -o requirements/onednn.lock
	$(BIN)/uv pip compile $(UV) --group clients -o requirements/clients.lock
	$(BIN)/uv pip compile $(UV) --group browser -o requirements/browser.lock
	$(BIN)/uv pip compile $(UV) --group tensorflow -c requirements/serve.lock -o requirements/tensorflow.lock
	$(BIN)/uv pip compile $(UV) --no-strip-extras --group mlserver -o requirements/mlserver.lock
	$(BIN)/uv pip compile $(UV) --group triton -o requirements/triton.lock
	$(BIN)/uv pip compile $(UV) --group checkpoints -c requirements/check.lock -o requirements/checkpoints.lock
	$(BIN)/uv pip compile $(UV) --no-deps --group interop-bare -o requirements/interop-bare.lock
	$(BIN)/uv pip compile $(UV) --no-deps --no-build-isolation --group fouroversix -o requirements/fouroversix.lock

UV := --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

clean: ## remove environments and caches
	rm -rf $(VENV) $(VENV)-interop $(ONNXRUNTIME_1_32) $(VENV)-generators $(VENV)-clients $(VENV)-browser $(VENV)-tensorflow $(VENV)-mlserver $(VENV)-triton $(VENV)-onednn $(VENV)-workers $(VENV)-docs $(VENV)-torch-* .llama-cpp .gemmlowp .from-source .qemu-riscv .iverilog .conformance .drift .arm64 .digests build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/python.done:
	$(PYTHON) -m venv $(VENV)
	@touch $@

# So that .venv/bin/python finds the packages without make.
FIND_SOURCES = printf '%s\n' $(CURDIR)/core $(CURDIR)/service > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/requant.pth"

$(VENV)/serve.done: $(VENV)/python.done requirements/serve.lock
	@echo "Installing $$(grep -c '^[a-z].*==' requirements/serve.lock) packages into $(VENV), about 0.4 GB. It takes half a minute; later starts skip it."
	@$(VENV)/$(filter-out --no-compile,$(INSTALL)) -r requirements/serve.lock
	@$(FIND_SOURCES)
	@touch $@

$(VENV)/check.done: $(VENV)/python.done requirements/check.lock
	$(VENV)/$(INSTALL) -r requirements/check.lock
	@$(FIND_SOURCES)
	@touch $@ $(VENV)/serve.done

$(VENV)-interop/done: requirements/interop.lock requirements/interop-bare.lock
	$(PYTHON) -m venv $(VENV)-interop
	$(VENV)-interop/$(INSTALL) -r requirements/interop.lock
	$(VENV)-interop/$(INSTALL) --no-deps -r requirements/interop-bare.lock
	@touch $@

# About 0.6 GB, half of it the service, whose routes the node cases call.
$(ONNXRUNTIME_1_32)/done: requirements/onnxruntime-1-32.lock
	$(PYTHON) -m venv $(ONNXRUNTIME_1_32)
	$(ONNXRUNTIME_1_32)/$(INSTALL) -r requirements/onnxruntime-1-32.lock
	@touch $@

$(VENV)-workers/done: requirements/workers.lock
	$(PYTHON) -m venv $(VENV)-workers
	$(VENV)-workers/$(INSTALL) -r requirements/workers.lock
	@touch $@

$(VENV)-tensorflow/done: requirements/tensorflow.lock
	$(PYTHON) -m venv $(VENV)-tensorflow
	$(VENV)-tensorflow/$(INSTALL) -r requirements/tensorflow.lock
	@touch $@

$(VENV)-onednn/done: requirements/onednn.lock
	$(PYTHON) -m venv $(VENV)-onednn
	$(VENV)-onednn/$(INSTALL) -r requirements/onednn.lock
	@touch $@

# torch is pinned by its version alone. The same version is published in several builds, with and without CUDA, that differ
# in their files and dependencies; pip takes the CPU build where it is offered one, and no list of hashes fits both. With
# CUDA, which it is linked with, it takes 5.5 GB.
$(VENV)-torch-%/done: requirements/check.lock
	$(PYTHON) -m venv $(VENV)-torch-$*
	$(VENV)-torch-$*/$(INSTALL) -r requirements/check.lock
	$(VENV)-torch-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-compile torch==$*
	@touch $@

# Beside torch, which the lock leaves out; llm-compressor asks for older versions than it runs with, so without dependencies.
$(CHECKPOINTS)/checkpoints.done: requirements/checkpoints.lock requirements/fouroversix.lock $(CHECKPOINTS)/done
	$(CHECKPOINTS)/$(INSTALL) --no-deps -r requirements/checkpoints.lock -r requirements/interop-bare.lock
	@# Built with the torch that is there, without kernels for GPUs.
	FORCE_BUILD=1 SKIP_CUDA_BUILD=1 $(CHECKPOINTS)/$(INSTALL) --no-deps --no-build-isolation -r requirements/fouroversix.lock
	@touch $@

$(VENV)-generators/done: requirements/generators.lock
	$(PYTHON) -m venv $(VENV)-generators
	$(VENV)-generators/$(INSTALL) -r requirements/generators.lock
	@touch $@

$(VENV)-docs/done: requirements/docs.lock
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/$(INSTALL) -r requirements/docs.lock
	@touch $@

$(VENV)-clients/done: requirements/clients.lock
	$(PYTHON) -m venv $(VENV)-clients
	$(VENV)-clients/$(INSTALL) -r requirements/clients.lock
	@touch $@

$(VENV)-browser/done: requirements/browser.lock
	$(PYTHON) -m venv $(VENV)-browser
	$(VENV)-browser/$(INSTALL) -r requirements/browser.lock
	@touch $@

$(VENV)-mlserver/done: requirements/mlserver.lock
	$(PYTHON) -m venv $(VENV)-mlserver
	$(VENV)-mlserver/$(INSTALL) -r requirements/mlserver.lock
	@touch $@

# Triton's wheel is for Linux on x86-64, and what it is installed with for Python 3.11. Elsewhere `make bench` leaves it out.
$(VENV)-triton/done: requirements/triton.lock
	@if [ "$$($(PYTHON) -c 'import platform, sys; print(*sys.version_info[:2], platform.system(), platform.machine())')" = "3 11 Linux x86_64" ]; then \
		$(PYTHON) -m venv $(VENV)-triton && $(VENV)-triton/$(INSTALL) -r requirements/triton.lock && touch $@; \
	else echo "No Triton Inference Server: its environment takes Python 3.11 on x86-64 Linux."; fi
