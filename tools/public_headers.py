"""Finds out which headers are public, and prints them; run it in the root of the tree.

A header is public
  * if an alias of the root's BUILD names its target, or names a target without headers
    that depends on its target,
  * if an example includes it, or it is a conformance suite of such a package, or
  * if a public header includes it and names one of its types outside of private parts;
but only if its target is visible to everyone, and if it declares something that is not
internal.
"""

import functools
import os
import pathlib
import re

INCLUDE = re.compile(r'#include "lockstep/([^"]+)"')


@functools.lru_cache(maxsize=None)
def read_build(package):
    """Returns the attributes of the targets in a package, by name.

    A BUILD file of this tree is also Python, where each rule is a function.
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
        "select": lambda branches: sum(branches.values(), []),
    }
    text = pathlib.Path(package, "BUILD").read_text()
    for name in re.findall(r"\b(\w+)\(", text):
        scope.setdefault(name, rule)
    exec(text, scope)
    return targets


def headers_of(label, package=""):
    """Returns the headers of a target, or else those of its dependencies."""
    if label.startswith("@"):
        return set()
    where, _, name = label.partition(":")
    package = where[2:] or package
    target = read_build(package)[name or os.path.basename(package)]
    if "hdrs" in target:
        return {f"{package}/{header}" for header in target["hdrs"]}
    return set().union(*(headers_of(each, package) for each in target.get("deps", [])))


def is_visible(header):
    """Returns whether everyone may depend on the target of a header."""
    package, name = os.path.split(header)
    return any(
        name in target.get("hdrs", []) and target["visibility"] == ["//visibility:public"]
        for target in read_build(package).values()
    )


def blank(pattern, text):
    """Returns text with blank lines in place of what matches."""
    return re.sub("(?ms)" + pattern, lambda found: "\n" * found.group().count("\n"), text)


@functools.lru_cache(maxsize=None)
def without_private(header):
    """Returns the text of a header with blank lines for the private parts of classes."""
    text = pathlib.Path(header).read_text()
    return blank(r"^( *) private:$.*?(?=^\1\};)", text)


@functools.lru_cache(maxsize=None)
def public_part(header):
    """Returns the text of a header with blank lines for what is private or internal.

    Internal are namespaces called internal_*, macros whose names end with an underscore,
    and what stands below the heading "Implementation details".
    """
    text = without_private(header)
    text = blank(r"^(namespace (?:lockstep::)?internal_\w+) \{$.*?^\}  // \1$", text)
    text = blank(r"^// ---- Implementation details.*?(?=^\}  // namespace lockstep$)", text)
    return blank(r"^#define \w+_\((?:[^\n]*\\\n)*[^\n]*$", text)


def code_of(text):
    """Returns text without comments."""
    return re.sub(r"//.*", "", text)


def declares_something(header):
    """Returns whether a header declares something that is not internal."""
    code = code_of(public_part(header))
    return re.search(r"(?m)^(?!#|namespace|\}|\s*$)|^#define \w+\(", code)


def types_of(header):
    """Returns the names of the types that a header declares in namespace lockstep."""
    code = code_of(public_part(header))
    return set(re.findall(r"(?m)^(?:class|struct|enum class|using) (?:ABSL_\w+ )?(\w+) ", code))


def words_of(header):
    """Returns all words in the code of a header but for private parts of classes."""
    return set(re.findall(r"\w+", code_of(without_private(header))))


def public_headers():
    """Returns the public headers, by package."""
    found = set()
    for target in read_build("").values():
        if "actual" in target:  # It is an alias.
            found |= headers_of(target["actual"])
    for path in pathlib.Path("examples").rglob("*"):
        if path.suffix in (".cc", ".h"):
            found.update(INCLUDE.findall(path.read_text()))
    for package in {os.path.dirname(header) for header in found}:
        found.update(map(str, pathlib.Path(package).glob("*conformance.h")))

    public = set()
    while found:
        header = found.pop()
        if header in public or header.startswith("examples/"):
            continue
        if not is_visible(header) or not declares_something(header):
            continue
        public.add(header)
        words = words_of(header)
        for included in INCLUDE.findall(pathlib.Path(header).read_text()):
            if types_of(included) & words:
                found.add(included)
    return sorted(public, key=os.path.split)


if __name__ == "__main__":
    print("\n".join(public_headers()))
