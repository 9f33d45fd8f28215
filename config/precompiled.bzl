"""Precompiled headers, which take a third off the time to compile this tree.

Most files of the tree spend most of their time on the same headers of Abseil,
GoogleTest and the standard library. With --//config:precompiled_headers, which
.bazelrc sets, GCC reads them from a file that it wrote once. Each file still
includes all that it uses: consumers, clang-tidy, and builds with Clang or
--config=opt compile it without.
"""

load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _precompiled_header_impl(ctx):
    toolchain = find_cc_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context

    # GCC uses x.h.gch in place of x.h if both are in one folder.
    folder = "lockstep_precompiled_" + ctx.label.name + "/"
    header = ctx.actions.declare_file(folder + precompiled_path(ctx.label.name))
    compiled = ctx.actions.declare_file(header.basename + ".gch", sibling = header)
    ctx.actions.symlink(output = header, target_file = ctx.file.hdr)
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = ctx.file.hdr.path,
        output_file = compiled.path,
        user_compile_flags = ctx.fragments.cpp.copts +
                             ctx.fragments.cpp.cxxopts + ctx.attr.copts +
                             ["-x", "c++-header"],
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
        use_pic = True,
    )
    action = "c++-compile"
    ctx.actions.run(
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling " + ctx.file.hdr.short_path,
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = action,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        inputs = depset(
            [ctx.file.hdr],
            transitive = [context.headers, toolchain.all_files],
        ),
        outputs = [compiled],
    )
    own = CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([header, compiled]),
        quote_includes = depset([compiled.dirname]),
    ))
    return [cc_common.merge_cc_infos(
        cc_infos = [own] + [dep[CcInfo] for dep in ctx.attr.deps],
    )]

precompiled_header = rule(
    doc = "A header to compile once; it is as good as a cc_library in deps.",
    implementation = _precompiled_header_impl,
    attrs = {
        "copts": attr.string_list(
            doc = "As in the targets that use it: GCC compares most flags.",
        ),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdr": attr.label(mandatory = True, allow_single_file = [".h"]),
        "_cc_toolchain": attr.label(
            default = Label("@rules_cc//cc:current_cc_toolchain"),
        ),
    },
    fragments = ["cpp"],
    toolchains = use_cc_toolchain(),
)

def precompiled_path(name):
    """Returns the name by which -include finds //config/precompiled:NAME."""
    return "lockstep_precompiled_" + name + ".h"

def _where_precompiled(value):
    return select({
        "//config:precompiled": value,
        "//conditions:default": [],
    })

def precompiled_deps(name):
    """Returns the deps of a target that uses //config/precompiled:NAME."""
    return _where_precompiled(["//config/precompiled:" + name])

def precompiled_copts(name):
    """Returns the copts of a target that uses //config/precompiled:NAME."""
    return _where_precompiled(
        ["-include", precompiled_path(name), "-Winvalid-pch"],
    )
