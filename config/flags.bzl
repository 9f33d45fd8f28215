"""Build settings, and a library that explains why it is not there."""

load("@rules_cc//cc:cc_library.bzl", "cc_library")

def _bool_flag_impl(_ctx):
    return []

bool_flag = rule(
    implementation = _bool_flag_impl,
    build_setting = config.bool(flag = True),
)

def _failure_impl(ctx):
    fail(ctx.attr.message)

_failure = rule(
    implementation = _failure_impl,
    attrs = {"message": attr.string(mandatory = True)},
)

def missing_library(name, remedy, enabled_by = None):
    """Stands in for a library that this machine lacks.

    Args:
      name: the label of the library.
      remedy: what analysis fails with when something needs the library.
      enabled_by: the label of a bool_flag. While it is off, nothing can need
        the library, and the label is empty and harmless.
    """
    explanation = [":" + name + "_is_missing"]
    if enabled_by != None:
        native.config_setting(
            name = name + "_is_needed",
            flag_values = {enabled_by: "True"},
        )
    _failure(
        name = name + "_is_missing",
        message = remedy,
        tags = ["manual"],
    )
    cc_library(
        name = name,
        deps = explanation if enabled_by == None else select({
            ":" + name + "_is_needed": explanation,
            "//conditions:default": [],
        }),
    )
