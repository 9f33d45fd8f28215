"""The monorepo's own Abseil: here the static libraries of the system."""

# The labels of Abseil that Lockstep uses. A monorepo that builds Abseil from
# its sources has all of them.
_LABELS = {
    "absl/base": ["core_headers"],
    "absl/flags": ["flag", "marshalling", "parse", "usage"],
    "absl/status": ["status", "statusor"],
    "absl/strings": ["cord", "str_format", "strings"],
    "absl/time": ["time"],
    "absl/types": ["span"],
}

_ALL = """
cc_library(
    name = "all",
    linkopts = ["-Wl,--start-group"] + {libraries} + ["-Wl,--end-group", "-pthread"],
    visibility = ["//visibility:public"],
)
"""

_ONE = """
cc_library(
    name = "{name}",
    deps = ["//:all"],
    visibility = ["//visibility:public"],
)
"""

def _system_abseil_impl(repository_ctx):
    found = repository_ctx.execute([
        "sh",
        "-c",
        "cd /usr/lib/$(gcc -print-multiarch) && ls libabsl_*.a",
    ])
    if found.return_code != 0:
        fail("libabsl-dev is not installed: " + found.stderr)
    libraries = ["-l:" + name for name in found.stdout.strip().split("\n")]
    repository_ctx.file("BUILD", _ALL.format(libraries = libraries))
    for package, names in _LABELS.items():
        repository_ctx.file(
            package + "/BUILD",
            "".join([_ONE.format(name = name) for name in names]),
        )

system_abseil = repository_rule(
    implementation = _system_abseil_impl,
    local = True,
)
