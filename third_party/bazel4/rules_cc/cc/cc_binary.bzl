"""The native rule under the file name that newer rules_cc gives it."""

cc_binary = native.cc_binary
