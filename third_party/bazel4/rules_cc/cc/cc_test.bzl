"""The native rule under the file name that newer rules_cc gives it."""

cc_test = native.cc_test
