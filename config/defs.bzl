"""The rules that every BUILD file of Lockstep uses in place of cc_*."""

load("@rules_cc//cc:cc_binary.bzl", "cc_binary")
load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("@rules_cc//cc:cc_test.bzl", "cc_test")

# Contracted multiply-adds would change bits that are promised to be the same
# everywhere (docs/determinism.md). A target's own copts come last, so no flag
# of a consumer undoes this one.
_COPTS = [
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
]

# For target_compatible_with of everything that includes a CUDA header.
REQUIRES_CUDA = select({
    "//config:cuda_enabled": [],
    "//conditions:default": ["//config:incompatible"],
})

def lockstep_cc_library(name, copts = [], **kwargs):
    """A cc_library whose headers are included as lockstep/<package>/<file>.h."""
    cc_library(
        name = name,
        copts = _COPTS + copts,
        include_prefix = "lockstep/" + native.package_name(),
        **kwargs
    )

def lockstep_cc_binary(name, copts = [], **kwargs):
    """A cc_binary with the flags of the library."""
    cc_binary(name = name, copts = _COPTS + copts, **kwargs)

def lockstep_cc_test(name, size = "small", copts = [], deps = [], **kwargs):
    """A GoogleTest of x_test.cc, or of `srcs`, that brings its own main()."""
    cc_test(
        name = name,
        size = size,
        srcs = kwargs.pop("srcs", [name + ".cc"]),
        copts = _COPTS + copts,
        deps = deps + ["@googletest//:gtest_main"],
        **kwargs
    )

def lockstep_cc_benchmark(name, copts = [], deps = [], runs = ".*", **kwargs):
    """A Google Benchmark of x_benchmark.cc, and a test that it still runs.

    The test runs those whose names match `runs`: leave out what is too large to
    be run under a sanitizer.
    """
    srcs = kwargs.pop("srcs", [name + ".cc"])
    deps = deps + ["@google_benchmark//:benchmark_main"]
    cc_binary(
        name = name,
        testonly = True,
        srcs = srcs,
        copts = _COPTS + copts,
        deps = deps,
        **kwargs
    )
    cc_test(
        name = name + "_runs",
        size = "small",
        srcs = srcs,
        args = [
            "--benchmark_min_time=0.0001",
            "--benchmark_filter=" + runs,
        ],
        copts = _COPTS + copts,
        deps = deps,
        **kwargs
    )
