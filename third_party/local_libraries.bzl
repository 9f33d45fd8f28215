"""Repositories over libraries that are installed on this machine.

No registry holds CUDA, NCCL or Gloo, and few builds need libjpeg-turbo and
libspng, so they are looked for where they are usually installed. A repository has the same labels whether its libraries were
found or not: what needs a missing one fails in analysis, with the places that
were searched and what to set.
"""

def _paths(repository_ctx, root, candidates):
    """The first of `candidates` below `root` that exists, or None."""
    for candidate in candidates:
        path = repository_ctx.path("%s/%s" % (root, candidate))
        if path.exists:
            return path
    return None

def _config(name):
    """A label of //config that other repositories can use."""
    label = str(Label("//config:" + name))
    return label if label.startswith("@") else "@lockstep" + label

_HEAD = """\
load("{config}:flags.bzl", "missing_library")
load("@rules_cc//cc:cc_library.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])
""".format(config = _config("flags.bzl").split(":")[0])

_FOUND = """
cc_library(
    name = "{name}",
    hdrs = glob({headers}, allow_empty = True),
    includes = {includes},
    linkopts = {linkopts},
)
"""

_MISSING = """
missing_library(
    name = "{name}",
    enabled_by = {enabled_by},
    remedy = {remedy},
)
"""

def _found(name, linkopts, headers = [], includes = []):
    return _FOUND.format(
        name = name,
        headers = repr(headers),
        includes = repr(includes),
        linkopts = repr(linkopts),
    )

def _missing(name, remedy, enabled_by = None):
    return _MISSING.format(
        name = name,
        enabled_by = repr(enabled_by),
        remedy = repr(remedy),
    )

_CUDA_HEADERS = [
    "include/*.h",
    "include/*.hpp",
    "include/crt/**",
]

def _local_cuda_impl(repository_ctx):
    environ = repository_ctx.os.environ
    root = environ.get("CUDA_HOME") or environ.get("CUDA_PATH") or "/usr/local/cuda"
    include = _paths(repository_ctx, root, ["include"])
    if include:
        repository_ctx.symlink(include, "include")
    build = _HEAD
    for name, header in [("cudart", "cuda_runtime_api.h"), ("nccl", "nccl.h")]:
        library = _paths(repository_ctx, root, [
            directory + "/lib%s.so" % name
            for directory in ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"]
        ])
        if library and include and include.get_child(header).exists:
            directory = str(library.dirname)
            build += _found(
                name,
                headers = _CUDA_HEADERS,
                includes = ["include"],
                linkopts = ["-L" + directory, "-Wl,-rpath," + directory, "-l" + name],
            )
        else:
            build += _missing(
                name,
                enabled_by = _config("cuda"),
                remedy = ("the CUDA code is on (--config=cuda), but %s with lib%s.so is not in %s. " +
                          "Set CUDA_HOME to a toolkit that has both, or hand in your own " +
                          "library with --@lockstep//config:%s=//your:label, or build without " +
                          "--config=cuda.") % (header, name, root, name),
            )
    repository_ctx.file("BUILD.bazel", build)

local_cuda = repository_rule(
    implementation = _local_cuda_impl,
    configure = True,
    doc = "The CUDA runtime and NCCL of $CUDA_HOME, $CUDA_PATH or /usr/local/cuda.",
    environ = ["CUDA_HOME", "CUDA_PATH"],
    local = True,
)

def _in_usr(repository_ctx, header):
    """Whether the compiler finds `header` without being told where it is."""
    return _paths(repository_ctx, "/usr", ["include/" + header, "local/include/" + header])

def _local_gloo_impl(repository_ctx):
    build = _HEAD
    if _in_usr(repository_ctx, "gloo/context.h"):
        build += _found("gloo", linkopts = ["-lgloo", "-pthread"])
    else:
        build += _missing(
            "gloo",
            remedy = "gloo/context.h is neither in /usr/include nor in /usr/local/include. " +
                     "Install libgloo-dev (Debian). Only Lockstep's own benchmark needs it.",
        )
    repository_ctx.file("BUILD.bazel", build)

local_gloo = repository_rule(
    implementation = _local_gloo_impl,
    configure = True,
    doc = "The Gloo that the system's package manager installed.",
    local = True,
)

def _local_images_impl(repository_ctx):
    build = _HEAD
    for name, header, package in [
        ("jpeg", "jpeglib.h", "libjpeg62-turbo-dev"),
        ("spng", "spng.h", "libspng-dev"),
    ]:
        if _in_usr(repository_ctx, header):
            build += _found(name, linkopts = ["-l" + name])
        else:
            build += _missing(
                name,
                enabled_by = _config("with_images"),
                remedy = ("images are on (--@lockstep//config:with_images), but %s is neither in " +
                          "/usr/include nor in /usr/local/include. Install %s (Debian), or hand " +
                          "in your own library with --@lockstep//config:lib%s=//your:label, or " +
                          "leave images out with --@lockstep//config:with_images=false.") %
                         (header, package, name),
            )
    repository_ctx.file("BUILD.bazel", build)

local_images = repository_rule(
    implementation = _local_images_impl,
    configure = True,
    doc = "The libjpeg-turbo and libspng that the system's package manager installed.",
    local = True,
)
