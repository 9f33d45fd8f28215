"""The libtorch that is installed on this machine."""

_BUILD = """\
load("@rules_cc//cc:cc_library.bzl", "cc_library")

cc_library(
    name = "libtorch",
    hdrs = glob(["api/**", "include/**"]),
    includes = ["api", "include"],
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

def _libtorch_impl(repository_ctx):
    root = repository_ctx.os.environ.get("LIBTORCH") or "/usr"
    api = root + "/include/torch/csrc/api/include"
    if not repository_ctx.path(api + "/torch/torch.h").exists:
        fail("%s/torch/torch.h is missing: install libtorch-dev (Debian), or set LIBTORCH to a folder with the include/ and lib/ of libtorch" % api)
    repository_ctx.symlink(api, "api")
    for name in ["ATen", "c10", "caffe2", "torch"]:
        if repository_ctx.path("%s/include/%s" % (root, name)).exists:
            repository_ctx.symlink("%s/include/%s" % (root, name), "include/" + name)
    linkopts = ["-ltorch_cpu", "-lc10"]
    if root != "/usr":
        linkopts = ["-L%s/lib" % root, "-Wl,-rpath,%s/lib" % root] + linkopts
    repository_ctx.file("BUILD", _BUILD.format(linkopts = repr(linkopts)))

libtorch = repository_rule(
    implementation = _libtorch_impl,
    doc = "The libtorch in the folder $LIBTORCH, or else in /usr.",
    environ = ["LIBTORCH"],
    local = True,
)
