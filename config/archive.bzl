"""One static archive of a library and of everything in this workspace that it needs.

It is for programs whose final link is not Bazel's. (Bazel 4.2 has no
cc_static_library.) Beside the archive are the headers, and a pkg-config file
with the flags of the libraries that other workspaces bring in: those are not part
of the archive.

    lib/liblockstep.a
    lib/pkgconfig/lockstep.pc
    include/lockstep/...
"""

load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

_PKG_CONFIG = """prefix=${{pcfiledir}}/../..
Name: {name}
Description: {description}
Version: {version}
Cflags: -I${{prefix}}/include
Libs: -L${{prefix}}/lib -l{name} {flags}
"""

def _archive(ctx, linker_inputs):
    """Declares the archive of all static libraries of this workspace."""
    libraries = []
    for linker_input in linker_inputs:
        if linker_input.owner.workspace_name != ctx.label.workspace_name:
            continue
        for library in linker_input.libraries:
            static = library.pic_static_library or library.static_library
            if static != None:
                libraries.append(static)
    archive = ctx.actions.declare_file("lib/lib{}.a".format(ctx.attr.library))
    script = ctx.actions.declare_file(ctx.label.name + ".mri")
    ctx.actions.write(
        script,
        "\n".join(
            ["CREATE " + archive.path] +
            ["ADDLIB " + library.path for library in libraries] +
            ["SAVE", "END", ""],
        ),
    )
    toolchain = find_cc_toolchain(ctx)
    ctx.actions.run_shell(
        mnemonic = "CppArchiveAll",
        progress_message = "Archiving " + archive.short_path,
        outputs = [archive],
        inputs = depset([script] + libraries, transitive = [toolchain.all_files]),
        command = '"{}" -M <"{}"'.format(toolchain.ar_executable, script.path),
    )
    return archive

def _headers(ctx, headers):
    """Declares the headers as they are included."""
    outputs = {}
    for header in headers:
        before, found, rest = header.path.partition("/_virtual_includes/")
        included = rest.partition("/")[2]
        if not found or not included.startswith(ctx.attr.include_prefix + "/"):
            continue
        if included in outputs:  # two targets have this header
            continue
        output = ctx.actions.declare_file("include/" + included)
        ctx.actions.symlink(output = output, target_file = header)
        outputs[included] = output
    return outputs.values()

def _cc_archive_impl(ctx):
    merged = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    )
    linker_inputs = merged.linking_context.linker_inputs.to_list()
    flags = []
    for linker_input in linker_inputs:
        for flag in linker_input.user_link_flags:
            if flag not in flags:
                flags.append(flag)
    pkg_config = ctx.actions.declare_file(
        "lib/pkgconfig/{}.pc".format(ctx.attr.library),
    )
    ctx.actions.write(pkg_config, _PKG_CONFIG.format(
        name = ctx.attr.library,
        description = ctx.attr.description,
        version = ctx.attr.version,
        flags = " ".join(flags),
    ))
    files = depset(
        [_archive(ctx, linker_inputs), pkg_config] +
        _headers(ctx, merged.compilation_context.headers.to_list()),
    )
    return [DefaultInfo(files = files, runfiles = ctx.runfiles(files.to_list()))]

cc_archive = rule(
    implementation = _cc_archive_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo], mandatory = True),
        "description": attr.string(mandatory = True),
        "include_prefix": attr.string(mandatory = True),
        "library": attr.string(mandatory = True),
        "version": attr.string(mandatory = True),
        "_cc_toolchain": attr.label(
            default = Label("@rules_cc//cc:current_cc_toolchain"),
        ),
    },
    toolchains = use_cc_toolchain(),
)
