"""The dependencies of Lockstep for Bazel 4.2 to 7 without bzlmod."""

load(":local_libraries.bzl", "local_cuda", "local_gloo", "local_images")

_SYSTEM = [
    "abseil-cpp",
    "asio",
    "eigen",
    "google_benchmark",
    "googletest",
    "onetbb",
    "openssl",
    "tomlplusplus",
]

_BAZEL4 = [
    "remote_coverage_tools",
    "rules_cc",
    "rules_java",
]

def lockstep_dependencies(path = "third_party"):
    """Defines each repository that Lockstep needs and the caller has not.

    Args:
      path: where this folder is, as seen from the calling workspace. A
        monorepo that holds Lockstep in third_party/lockstep says
        "third_party/lockstep/third_party".
    """
    for name in _SYSTEM:
        _define(native.local_repository, name, path = path + "/system/" + name)
    for name in _BAZEL4:
        _define(native.local_repository, name, path = path + "/bazel4/" + name)
    _define(local_cuda, "local_cuda")
    _define(local_gloo, "local_gloo")
    _define(local_images, "local_images")

def _define(rule, name, **kwargs):
    if native.existing_rule(name) == None:
        rule(name = name, **kwargs)
