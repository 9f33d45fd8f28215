"""The native rule under the file name that newer rules_cc gives it."""

cc_library = native.cc_library
