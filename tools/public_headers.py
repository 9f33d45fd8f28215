"""Finds the public headers, and prints them; run it in the root of the tree.

A header is public if everyone may depend on its target. ARCHITECTURE.md lists the public
headers, and tools/ci/visibility proves both by what a consumer's Bazel says.

  public_headers.py            prints the public headers
  public_headers.py --targets  prints the labels of all public targets
"""

import functools
import os
import pathlib
import re
import subprocess
import sys


@functools.lru_cache(maxsize=None)
def read_build(package):
    """Returns the attributes of the targets in a package, by name.

    A BUILD file of this tree is also valid Python, in which each rule is a function.
    """
    targets = {}
    common = {"visibility": ["//visibility:private"]}

    def package_rule(default_visibility):
        common["visibility"] = default_visibility

    def rule(*_, name="", **attributes):
        targets[name] = {**common, **attributes}

    scope = {
        "load": lambda file, *names: scope.update(dict.fromkeys(names, rule)),
        "package": package_rule,
        "glob": lambda patterns: [],
        "select": lambda branches: sum(branches.values(), []),
    }
    text = pathlib.Path(package, "BUILD").read_text()
    for name in re.findall(r"\b(\w+)\(", text):
        scope.setdefault(name, rule)
    exec(text, scope)
    return targets


def public_targets():
    """Returns the attributes of all public targets, by package and name."""
    packages = subprocess.run(["git", "ls-files", "BUILD", "*/BUILD"], check=True,
                              capture_output=True, text=True).stdout.split()
    return {
        (os.path.dirname(build), name): attributes
        for build in packages
        if not build.startswith(("examples/consumers/", "examples/libtorch/"))
        for name, attributes in read_build(os.path.dirname(build)).items()
        if attributes["visibility"] == ["//visibility:public"]
    }


def public_headers():
    """Returns the public headers, by package."""
    found = {f"{package}/{header}" for (package, _), attributes in public_targets().items()
             for header in attributes.get("hdrs", [])}
    return sorted(found, key=os.path.split)


def blank(pattern, text):
    """Returns text in which blank lines replace the matches of a pattern."""
    return re.sub("(?ms)" + pattern, lambda found: "\n" * found.group().count("\n"), text)


@functools.lru_cache(maxsize=None)
def without_private(header):
    """Returns a header in which blank lines replace the private parts of classes."""
    text = pathlib.Path(header).read_text()
    return blank(r"^( *) private:$.*?(?=^\1\};)", text)


@functools.lru_cache(maxsize=None)
def public_part(header):
    """Returns a header in which blank lines replace private and internal parts.

    Internal parts are namespaces called internal_*, macros whose names end with an
    underscore, and everything below the heading "Implementation details".
    """
    text = without_private(header)
    text = blank(r"^(namespace (?:lockstep::)?internal_\w+) \{$.*?^\}  // \1$", text)
    text = blank(r"^// ---- Implementation details.*?(?=^\}  // namespace lockstep$)", text)
    return blank(r"^#define \w+_\((?:[^\n]*\\\n)*[^\n]*$", text)


if __name__ == "__main__":
    if sys.argv[1:] == ["--targets"]:
        print("\n".join(f"//{package}:{name}" for package, name in sorted(public_targets())))
    else:
        print("\n".join(public_headers()))
