"""For MODULE.bazel: the libraries that are looked for on the machine."""

load(":local_libraries.bzl", "local_cuda", "local_gloo", "local_images")

def _local_libraries_impl(_module_ctx):
    local_cuda(name = "local_cuda")
    local_gloo(name = "local_gloo")
    local_images(name = "local_images")

local_libraries = module_extension(implementation = _local_libraries_impl)
