"""For MODULE.bazel: the libraries that the Bazel Central Registry lacks."""

load(":local_libraries.bzl", "local_cuda", "local_gloo")

def _local_libraries_impl(_module_ctx):
    local_cuda(name = "local_cuda")
    local_gloo(name = "local_gloo")

local_libraries = module_extension(implementation = _local_libraries_impl)
