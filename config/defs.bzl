"""The rules that every BUILD file of Lockstep uses in place of cc_*."""

load("@rules_cc//cc:cc_binary.bzl", "cc_binary")
load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("@rules_cc//cc:cc_test.bzl", "cc_test")
load(":precompiled.bzl", "precompiled_copts", "precompiled_deps")

# Contracted multiply-adds would change bits that must be the same everywhere
# (docs/determinism.md). A target's own copts come last, so no flag of a
# consumer overrides -ffp-contract=off.
_COPTS = [
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
]

# The target_compatible_with of every target that includes a CUDA header.
REQUIRES_CUDA = select({
    "//config:cuda_enabled": [],
    "//conditions:default": ["//config:incompatible"],
})

# The target_compatible_with of every target that includes a header of libjpeg-turbo
# or libspng.
REQUIRES_IMAGES = select({
    "//config:images_enabled": [],
    "//conditions:default": ["//config:incompatible"],
})

# Compiling most tests takes longer than running them. So tests and testonly
# libraries are compiled without optimization, unless they are `optimized`.
_TEST_COPTS = _COPTS + ["-O0"] + precompiled_copts("test")
_LIBRARY_COPTS = _COPTS + precompiled_copts("library")

def lockstep_cc_library(
        name,
        copts = [],
        deps = [],
        optimized = False,
        testonly = False,
        **kwargs):
    """A cc_library whose headers are included as lockstep/<package>/<file>.h."""
    is_test = testonly and not optimized
    cc_library(
        name = name,
        copts = (_TEST_COPTS if is_test else _LIBRARY_COPTS) + copts,
        deps = deps + precompiled_deps("test" if is_test else "library"),
        include_prefix = "lockstep/" + native.package_name(),
        testonly = testonly,
        **kwargs
    )

def lockstep_cc_binary(name, copts = [], deps = [], **kwargs):
    """A cc_binary with the flags of the library."""
    cc_binary(
        name = name,
        copts = _LIBRARY_COPTS + copts,
        deps = deps + precompiled_deps("library"),
        **kwargs
    )

def lockstep_cc_test(
        name,
        size = "small",
        copts = [],
        deps = [],
        optimized = False,
        **kwargs):
    """A GoogleTest of x_test.cc, or of `srcs`, that brings its own main()."""
    cc_test(
        name = name,
        size = size,
        srcs = kwargs.pop("srcs", [name + ".cc"]),
        copts = (_LIBRARY_COPTS if optimized else _TEST_COPTS) + copts,
        deps = deps + ["@googletest//:gtest_main"] +
               precompiled_deps("library" if optimized else "test"),
        **kwargs
    )

def lockstep_cc_benchmark(name, deps = [], runs = ".*", **kwargs):
    """A Google Benchmark of x_benchmark.cc, and a test that it still runs.

    The test runs those whose names match `runs`: leave out what is too large to
    be run under a sanitizer.
    """
    lockstep_cc_library(
        name = name + "_main",
        testonly = True,
        srcs = [name + ".cc"],
        optimized = True,
        deps = deps + ["@google_benchmark//:benchmark_main"],
        alwayslink = True,
        **kwargs
    )
    cc_binary(
        name = name,
        testonly = True,
        deps = [":" + name + "_main"],
    )
    cc_test(
        name = name + "_runs",
        size = "small",
        args = [
            "--benchmark_min_time=0.0001",
            "--benchmark_filter=" + runs,
        ],
        deps = [":" + name + "_main"],
    )

def lockstep_cc_fuzz_test(name, deps = [], **kwargs):
    """A fuzzer of x_fuzz.cc, and a test that replays its corpus.

    tools/ci/fuzz builds and runs the fuzzer, with the words of x_fuzz.dict if there
    is such a file. The corpus is //testdata:fuzz/x_fuzz. Bazel's wildcards leave the
    fuzzer out, since only Clang has what it is linked with.
    """
    lockstep_cc_binary(
        name = name,
        testonly = True,
        srcs = [name + ".cc"],
        linkopts = ["-fsanitize=fuzzer"],
        tags = [
            "fuzz",
            "manual",
        ],
        deps = deps + ["//base:fuzz_input"],
    )
    corpus = "//testdata:fuzz/" + name
    cc_test(
        name = name + "_replay",
        size = "small",
        srcs = [name + ".cc"],
        copts = _TEST_COPTS,
        args = ["$(rootpaths {})".format(corpus)],
        data = [corpus],
        deps = deps + [
            "//base:fuzz_input",
            "//base:fuzz_replay",
        ] + precompiled_deps("test"),
        **kwargs
    )
