"""Bazel's own function under the names that newer rules_cc gives it."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

find_cc_toolchain = find_cpp_toolchain

def use_cc_toolchain():
    """Returns the toolchains of a rule that calls find_cc_toolchain."""
    return ["@bazel_tools//tools/cpp:toolchain_type"]
