"""The native provider under the file name that newer rules_cc gives it."""

load(":native.bzl", "native_cc_info")

CcInfo = native_cc_info
