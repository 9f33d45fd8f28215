"""The native module under the file name that newer rules_cc gives it."""

load(":native.bzl", "native_cc_common")

cc_common = native_cc_common
